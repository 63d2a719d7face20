//! The suite finds the mistakes that are likely: each is put into the scripts, and a test has to fail for it.

use std::future::Future;
use std::pin::Pin;

use super::*;
use crate::store::redis::Mutation;

type Check = fn(Fixture) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// All scripts in one.
const SCRIPTS: &str = concat!(
    include_str!("../lua/common.lua"),
    include_str!("../lua/charging.lua"),
    include_str!("../lua/fixed_window.lua"),
    include_str!("../lua/calendar_window.lua"),
    include_str!("../lua/sliding_window.lua"),
    include_str!("../lua/token_bucket.lua"),
    include_str!("../lua/concurrency.lua"),
    include_str!("../lua/balance.lua"),
    include_str!("../lua/reserve.lua"),
    include_str!("../lua/settle.lua"),
    include_str!("../lua/extend.lua"),
);

/// Passes with the scripts as they are, and fails with the mistake in them.
async fn found(from: &'static str, to: &'static str, check: Check) {
    assert!(SCRIPTS.contains(from), "the scripts have changed: {from}");
    let whole = Fixture::redis_mutated(Mutation { from, to: from }).await;
    tokio::spawn(check(whole)).await.unwrap();
    let mutated = Fixture::redis_mutated(Mutation { from, to }).await;
    let outcome = tokio::spawn(check(mutated)).await;
    assert!(outcome.is_err_and(|error| error.is_panic()), "nothing finds: {to}");
}

macro_rules! mutations {
    ($($name:ident: $from:literal => $to:literal, by $($check:ident)::+;)+) => {
        $(#[tokio::test]
        async fn $name() {
            found($from, $to, |fixture| Box::pin(super::$($check)::+(fixture))).await;
        })+
    };
}

mutations! {
    a_naive_bucket_refund:
        "math.max(math.min(headroom, math.min(amount * b.den, MAX_AMOUNT)), 0)"
        => "math.min(amount * b.den, MAX_AMOUNT)",
        by properties::suite::a_refund_is_worth_its_headroom;
    n_sub_windows_instead_of_one_more:
        "local length, n = struct.unpack('>dd', text, at)"
        => "local length, n = struct.unpack('>dd', text, at) n = n - 1",
        by properties::suite::no_window_has_more_than_its_limit;
    a_refund_into_the_current_window:
        "if struct.unpack('>d', text, at) == b.start then" => "if true then",
        by settling::suite::a_refund_goes_to_its_window_or_nowhere;
    a_refund_into_the_current_day:
        "  refund = function(b, text, at, amount)\n    if struct.unpack('>d', text, at) == b.start then"
        => "  refund = function(b, text, at, amount)\n    if true then",
        by conservation::suite::every_window_has_its_charges;
    a_refund_into_the_current_sub_window:
        "local place = struct.unpack('>d', text, at) - (b.head - b.n)" => "local place = b.n",
        by properties::suite::a_late_refund_of_a_sliding_window;
    an_excess_dropped_when_the_window_is_over:
        "b.algorithm.excess(b, amount)" => "amount = 0",
        by settling::suite::an_excess_goes_to_the_current_window;
    a_write_before_everything_is_read:
        "charges[i] = b\n" => "charges[i] = b b.algorithm.save(b)\n",
        by properties::suite::a_refusal_leaves_every_state;
    a_tombstone_left_out:
        "redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])" => "redis.call('DEL', KEYS[1])",
        by settling::suite::only_the_first_settle_counts;
    a_hold_after_the_close:
        "  elseif record == 'S' then\n    return answer('G', charges)" => "  elseif record == 'S' then\n    record = nil",
        by repeats::suite::one_reservation_in_any_order;
    numbers_of_14_digits_in_a_window:
        "b.used = math.min(b.used + amount, MAX_AMOUNT)"
        => "b.used = tonumber('' .. math.min(b.used + amount, MAX_AMOUNT))",
        by properties::suite::the_largest_amounts_are_exact_everywhere;
    numbers_of_14_digits_elsewhere:
        "return string.format('%.0f', number)" => "return '' .. number",
        by properties::suite::the_largest_amounts_are_exact_everywhere;
    a_settle_that_does_not_look_again:
        "if (redis.call('GET', KEYS[1]) or '') ~= ARGV[2] then" => "if false then",
        by concurrent::suite::one_of_many_repeats;
    a_shadow_that_refuses:
        "held = held and (b.shadow or b.amount <= b.algorithm.room(b))"
        => "held = held and b.amount <= b.algorithm.room(b)",
        by deciding::suite::shadows_never_refuse;
    a_clamp_rounded_up:
        "local per_choice = math.floor(most / choices)" => "local per_choice = math.ceil(most / choices)",
        by deciding::suite::a_clamped_request_holds_what_fits;
    a_hold_that_stays_held_when_it_is_closed:
        "portions[at + 1] = portions[at + 1] - held" => "portions[at + 1] = portions[at + 1]",
        by holding::suite::what_is_closed_is_not_held;
    a_hold_that_stays_held_when_it_has_lapsed:
        "if ends > now then" => "if true then",
        by holding::suite::what_lapses_is_not_held;
    a_new_window_that_keeps_what_was_held:
        "if b.start ~= stored then" => "if false then",
        by holding::suite::a_new_window_holds_nothing;
    a_request_that_counts_as_held:
        "and string.byte(b.known, b.past - 32 + 17) ~= REQUESTS then" => "then",
        by holding::suite::what_is_closed_is_not_held;
    an_answer_for_another_prompt:
        "or held_prompt ~= prompt then" => "then",
        by other_content::suite::another_request_is_not_replayed;
    a_write_before_the_open_holds_are_known:
        "  redis.call('ZADD', KEYS[2], lapses" => "  redis.call('SET', KEYS[1], '') redis.call('ZADD', KEYS[2], lapses",
        by holding::open_holds_of_another_type;
    a_clock_that_frees_by_going_back:
        "  elseif stored > start then\n    -- The clock went back further: the amount stays.\n    b.used, b.went_back = used, true\n"
        => "",
        by reserving::suite::the_clock_goes_back;
}
