//! An id stands for one request: whoever comes with another one under it is not told that it is held.

use super::*;
use crate::store::{Clamp, Extended, Hold, Verdict};
use crate::tag::Tag;

over_both_stores!(suite: another_request_is_not_replayed, what_was_clamped_or_extended_is_replayed);

fn request(number: u64) -> Hold {
    let whole = hold(number, &[requests(10), tokens(1_000, 0)]);
    Hold { prompt_tokens: 20, output_tokens: 200, choices: 2, grant: Some(100), ..whole }
}

const GRANTED: Verdict = Verdict::Held { grant: Some(100), replayed: false };
const AGAIN: Verdict = Verdict::Held { grant: Some(100), replayed: true };

pub mod suite {
    use super::*;

    pub async fn another_request_is_not_replayed(fixture: Fixture) {
        assert_eq!(fixture.verdict(&request(1)).await, GRANTED);
        let before = fixture.dump();
        let clamp = Some(Clamp { min_output_tokens: 5 });
        for (what, other) in [
            ("model", Hold { model: Tag::model(Some("another")), ..request(1) }),
            ("no model", Hold { model: Tag::model(None), ..request(1) }),
            ("caller", Hold { identity: Tag::of("identity", [Some("another")]), ..request(1) }),
            ("more prompt", Hold { prompt_tokens: 21, ..request(1) }),
            ("less prompt", Hold { prompt_tokens: 19, ..request(1) }),
            ("more output", Hold { output_tokens: 2_000, grant: Some(1_000), ..request(1) }),
            ("less output", Hold { output_tokens: 20, grant: Some(10), ..request(1) }),
            ("less output, clamped", Hold { output_tokens: 20, grant: Some(10), clamp, ..request(1) }),
            ("more choices", Hold { output_tokens: 400, choices: 4, ..request(1) }),
            ("no output limit", Hold { output_tokens: 2_000, grant: None, ..request(1) }),
        ] {
            for attempt in [1, 2] {
                let other = Hold { attempt, ..other.clone() };
                assert_eq!(fixture.verdict(&other).await, Verdict::Gone, "{what}");
            }
            // Nor does it count as an attempt of the first.
            assert_eq!(fixture.dump(), before, "{what}");
        }
        assert_eq!(fixture.verdict(&request(1)).await, AGAIN);
        assert_eq!(fixture.verdict(&Hold { attempt: 2, ..request(1) }).await, AGAIN);
    }

    pub async fn what_was_clamped_or_extended_is_replayed(fixture: Fixture) {
        assert_eq!(fixture.verdict(&request(1)).await, GRANTED);
        assert_eq!(fixture.extend(extension(1, 500)).await, Extended::Held { output_tokens: 500 });
        assert_eq!(fixture.verdict(&Hold { attempt: 2, ..request(1) }).await, AGAIN);
        let clamp = Some(Clamp { min_output_tokens: 5 });
        let large = Hold { output_tokens: 2_000, grant: Some(1_000), clamp, ..request(2) };
        // 1,000 less 520 less the prompt, for two choices.
        let held = |replayed| Verdict::Held { grant: Some(230), replayed };
        assert_eq!(fixture.verdict(&large).await, held(false));
        assert_eq!(fixture.verdict(&Hold { attempt: 2, ..large.clone() }).await, held(true));
        let unlimited = Hold { grant: None, output_tokens: 1_500, ..large.clone() };
        assert_eq!(fixture.verdict(&unlimited).await, held(true));
        // The same without the right to be clamped was not answered by this.
        assert_eq!(fixture.verdict(&Hold { clamp: None, ..large }).await, Verdict::Gone);
        // A refused request is told what is held, so that it can be released.
        assert_eq!(
            fixture.verdict(&Hold { refuse: true, model: Tag::model(None), ..request(1) }).await,
            AGAIN
        );
    }
}
