use super::*;

const LEASES: Algorithm = Algorithm::Concurrency { lease_ms: MINUTE };

#[test]
fn slots_end_with_their_request_or_their_lease() {
    let mut sim = Sim::new(LEASES, 2);
    assert_eq!(sim.reserve(1, 1), Ok(Mark::None));
    sim.now += 10_000;
    sim.reserve(2, 1).unwrap();
    assert_eq!(sim.open().gauge(), Gauge { used: 2, remaining: 0, held: 2, reset_ms: MINUTE });
    assert_eq!(sim.reserve(3, 1), Err(Wait::Estimate(1_000)));
    sim.refund(2, &Mark::None, 1);
    sim.refund(2, &Mark::None, 1);
    assert_eq!(sim.used(), 1);
    sim.reserve(3, 1).unwrap();
    // The lease of the first one is over.
    sim.now = T0 + MINUTE;
    assert_eq!(sim.used(), 1);
    sim.excess(5);
    assert_eq!(sim.used(), 1);
    assert_eq!(Sim::new(LEASES, 0).reserve(1, 1), Err(Wait::Never));
}

#[test]
fn a_renewed_lease_keeps_its_slot_and_a_lapsed_one_takes_another() {
    let renew = |sim: &mut Sim, number, force| {
        let mut bucket = sim.open();
        let renewed = bucket.renew(&id(number), force);
        sim.state = Some(bucket.state());
        renewed
    };
    let mut sim = Sim::new(LEASES, 1);
    sim.reserve(1, 1).unwrap();
    sim.now += 50_000;
    assert!(renew(&mut sim, 1, false));
    sim.now += 50_000;
    assert!(sim.reserve(2, 1).is_err());
    sim.now += 10_000;
    sim.reserve(2, 1).unwrap();
    assert!(!renew(&mut sim, 1, false));
    assert_eq!(sim.used(), 1);
    assert!(renew(&mut sim, 1, true));
    assert_eq!(sim.used(), 2);
}

#[test]
fn leases_from_before_the_clock_went_back_are_not_counted_for_ever() {
    for (back, used) in [(1_000, 1), (MINUTE, 1), (2 * MINUTE, 0), (40 * 86_400_000, 0)] {
        let mut sim = Sim::new(LEASES, 1);
        sim.reserve(1, 1).unwrap();
        sim.now -= back;
        assert_eq!(sim.used(), used, "{back}");
    }
}

#[test]
fn a_balance_is_what_was_granted_less_what_was_spent() {
    let mut sim = Sim::new(Algorithm::Balance, 0);
    assert_eq!(sim.reserve(1, 1), Err(Wait::Unknown));
    sim.state = Some(State::Balance(Account::default().topped_up(100).unwrap()).into());
    let mark = sim.reserve(1, 70).unwrap();
    assert_eq!(sim.reserve(2, 31), Err(Wait::Unknown));
    sim.refund(1, &mark, 50);
    assert_eq!(sim.open().gauge(), Gauge { used: 20, remaining: 80, held: 0, reset_ms: 0 });
    sim.excess(200);
    assert_eq!(sim.open().gauge(), Gauge { used: 220, remaining: -120, held: 0, reset_ms: 0 });
    assert_eq!((sim.open().gauge().left(), sim.open().gauge().granted()), (0, 100));
    assert_eq!(sim.reserve(2, 0), Err(Wait::Unknown));
    assert_eq!(sim.open().keep_ms(), None);
    let most = Account { granted: MAX_AMOUNT - 1, spent: 0 };
    assert_eq!(most.topped_up(1).map(|account| account.granted), Some(MAX_AMOUNT));
    assert_eq!(most.topped_up(2), None);
    assert_eq!(most.topped_up(u64::MAX), None);
}
