//! Whether a request is admitted, and with how much output, from the room in its buckets. The reserve script
//! decides in the same way.

use super::record::Record;
use super::{Charge, Hold};
use crate::limits::MAX_AMOUNT;

/// What an admitted request holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Per choice, as in [`Hold::grant`].
    pub grant: Option<u64>,
    pub output_tokens: u64,
}

/// `rooms` has what still fits into the bucket of each charge.
pub fn decide(hold: &Hold, rooms: &[i64]) -> Option<Granted> {
    if hold.refuse {
        return None;
    }
    let enforcing = || hold.charges.iter().zip(rooms).filter(|(charge, _)| !charge.shadow);
    let fits = |(charge, room): (&Charge, &i64)| {
        i128::from(hold.amount(charge, hold.output_tokens)) <= i128::from(*room)
    };
    if enforcing().all(fits) {
        return Some(Granted { grant: hold.grant, output_tokens: hold.output_tokens });
    }
    let clamp = hold.clamp.filter(|_| clampable(hold))?;
    let mut most = i128::from(hold.output_tokens);
    for (charge, room) in enforcing() {
        let rates = &charge.rates;
        let base = i128::try_from(rates.hold_sum(hold.prompt_tokens, 0)).ok()?;
        let left = i128::from(*room) * i128::from(rates.per.max(1)) - base;
        match rates.dearest_output() {
            0 if !fits((charge, room)) => return None,
            0 => {}
            _ if left < 0 => return None,
            output => most = most.min(left / i128::from(output)),
        }
    }
    let choices = u64::from(hold.choices.max(1));
    let per_choice = u64::try_from(most).ok()? / choices;
    let output_tokens = per_choice.saturating_mul(choices);
    let enough = per_choice >= clamp.min_output_tokens.max(1);
    enough.then_some(Granted { grant: Some(per_choice), output_tokens })
}

/// Whether the record can be the answer to this request: a repeat of the one that has made it. Less may be held than
/// is asked for where it was clamped, and more where it was extended. The reserve script compares in the same way.
pub fn same_request(record: &Record, hold: &Hold) -> bool {
    if record.identity != hold.identity {
        return false;
    }
    // A refused request holds nothing, whatever it was; and format 1 says no more.
    if hold.refuse || record.plan.is_none() {
        return true;
    }
    if record.model != hold.model || record.prompt_tokens != hold.prompt_tokens {
        return false;
    }
    if record.grant == hold.grant && record.output_tokens >= hold.output_tokens {
        return true;
    }
    let clamp = hold.clamp.filter(|_| clampable(hold));
    let (Some(clamp), Some(granted)) = (clamp, record.grant) else { return false };
    granted >= clamp.min_output_tokens
        && granted.saturating_mul(hold.choices.max(1).into()) <= record.output_tokens
        && hold.grant.is_none_or(|wanted| granted <= wanted)
}

/// Whether scripts, whose numbers are doubles, can work out less than the whole.
pub fn clampable(hold: &Hold) -> bool {
    let largest = u128::from(MAX_AMOUNT);
    let exact = |charge: &Charge| charge.rates.hold_sum(hold.prompt_tokens, hold.output_tokens) <= largest;
    hold.output_tokens <= MAX_AMOUNT && hold.charges.iter().filter(|charge| !charge.shadow).all(exact)
}
