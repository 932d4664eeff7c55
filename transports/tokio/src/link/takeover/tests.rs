use super::*;

/// Simulates one connection that finds this retained message.
fn connect(store: &mut Takeover, retained: Option<&str>, unix_ms: u64) -> Option<String> {
    let marker = store.marker();
    if let Some(retained) = retained {
        assert!(!store.handle_message(true, retained.as_bytes()));
    }
    assert!(store.handle_message(false, marker.as_bytes()));
    store.claim(unix_ms)
}

fn store(instance: u64) -> Takeover {
    Takeover::new("the store".to_owned(), instance).expect("a client id")
}

#[test]
fn claim_round_trips_through_its_text() {
    for (number, instance) in [(0, 0), (1_696_374_425_000, 0xfeed), (u64::MAX, u64::MAX)] {
        let claim = Claim { number, instance };
        assert_eq!(Claim::parse(claim.to_string().as_bytes()), Some(claim));
    }
    assert_eq!(Claim { number: 7, instance: 0xab }.to_string(), "7:00000000000000ab");
}

#[test]
fn other_payloads_are_not_claims() {
    let others: [&[u8]; 14] = [
        b"",
        b":",
        b"7",
        b"7:",
        b":00000000000000ab",
        b"7:ab",
        b"7:00000000000000abc",
        b"7:+0000000000000ab",
        b"+7:00000000000000ab",
        b" 7:00000000000000ab",
        b"7:00000000000000ab\n",
        b"18446744073709551616:00000000000000ab",
        b":1\r\n",
        b"\xff\xfe",
    ];
    for payload in others {
        assert_eq!(Claim::parse(payload), None, "{}", payload.escape_ascii());
        let text = String::from_utf8_lossy(payload);
        assert_eq!(connect(&mut store(1), Some(&text), 5).as_deref(), Some("5:0000000000000001"));
    }
}

#[test]
fn latest_store_wins_whatever_the_clocks() {
    for (then, now) in [(1_000, 2_000), (2_000, 1_000), (1_000, 1_000)] {
        let (mut first, mut second) = (store(2), store(1));
        let older = connect(&mut first, None, then).expect("no other store exists");
        let newer = connect(&mut second, Some(&older), now).expect("this store started last");
        // Both are disconnected once more and reconnect.
        assert_eq!(connect(&mut first, Some(&newer), now + 10), None, "{then} {now}");
        assert_eq!(connect(&mut second, Some(&newer), now + 10), Some(newer));
    }
}

#[test]
fn store_keeps_its_number_for_its_lifetime() {
    let mut store = store(1);
    let claim = connect(&mut store, Some("41:00000000000000ff"), 5);
    assert_eq!(claim.as_deref(), Some("42:0000000000000001"), "one more than the remaining claim");
    assert_eq!(connect(&mut store, None, 99), claim, "the broker has lost the claim");
    assert_eq!(
        connect(&mut store, Some("41:00000000000000ff"), 99),
        claim,
        "the broker has restored an older claim"
    );
}

/// Numbers that are years ahead of the clock, or the greatest ones.
const FAR: [&str; 4] = [
    "9000000000000000:00000000000000ff",
    "18446744073709551614:00000000000000ff",
    "18446744073709551615:00000000000000ff",
    "18446744073709551615:ffffffffffffffff",
];
const NOW: u64 = 1_696_374_425_000;

#[test]
fn claim_far_ahead_of_the_clock_ends_no_store() {
    for far in FAR {
        let mut new = store(1);
        assert!(connect(&mut new, Some(far), NOW).is_some(), "{far}");
        let mut running = store(1);
        let own = connect(&mut running, None, NOW).expect("no other store exists");
        for _ in 0..3 {
            assert!(connect(&mut running, Some(far), NOW + 1).is_some(), "{far} after {own}");
        }
    }
}

/// The stores take over from each other until one of them ends.
#[test]
fn one_of_two_stores_serves_after_a_claim_far_ahead() {
    for far in FAR {
        for clocks in [[NOW, NOW + 9], [NOW + 9, NOW], [NOW, NOW * 3], [NOW * 3, NOW]] {
            for first_finds in [None, Some(far)] {
                let mut stores = [store(1), store(2)];
                let mut retained = connect(&mut stores[0], first_finds, clocks[0]);
                retained = connect(&mut stores[1], Some(far), clocks[1]).or(retained);
                let mut left = vec![0, 1];
                for turn in 0..20 {
                    let at = turn % left.len();
                    let which = left[at];
                    match connect(&mut stores[which], retained.as_deref(), clocks[which]) {
                        Some(claim) => retained = Some(claim),
                        None => _ = left.remove(at),
                    }
                }
                assert_eq!(left.len(), 1, "{far} {clocks:?} {first_finds:?}");
            }
        }
    }
}

#[test]
fn claim_within_a_year_of_the_clock_is_from_another_store() {
    let year = 365 * 24 * 60 * 60 * 1_000;
    for (ahead, is_replaced) in [(1, true), (year, true), (year + 1, false)] {
        let mut store = store(1);
        connect(&mut store, None, NOW).expect("no other store exists");
        let other = format!("{}:00000000000000ff", NOW + ahead);
        assert_eq!(connect(&mut store, Some(&other), NOW).is_none(), is_replaced, "{ahead}");
    }
}

#[test]
fn one_of_two_stores_that_saw_no_claim_remains() {
    for clock in [5, 6, 7] {
        let (mut one, mut other) = (store(1), store(2));
        let claims =
            [connect(&mut one, None, 6), connect(&mut other, None, clock)].map(Option::unwrap);
        let left = [
            connect(&mut one, Some(&claims[1]), 9).is_some(),
            connect(&mut other, Some(&claims[0]), 9).is_some(),
        ];
        assert_eq!(left, [clock < 6, clock >= 6]);
    }
}

#[test]
fn only_retained_claims_count_and_only_the_own_marker_is_an_echo() {
    let (mut one, mut other) = (store(1), store(2));
    let marker = one.marker();
    assert!(!one.handle_message(false, b"99:00000000000000ff"), "a reply is never retained");
    assert!(!one.handle_message(false, other.marker().as_bytes()));
    assert!(!one.handle_message(true, marker.as_bytes()));
    assert_eq!(one.claim(5).as_deref(), Some("5:0000000000000001"));
}

#[test]
fn claim_found_on_an_earlier_connection_is_discarded() {
    let mut store = store(1);
    connect(&mut store, None, 5);
    store.marker();
    store.handle_message(true, b"6:0000000000000001");
    // Lost before the echo.
    assert!(connect(&mut store, None, 5).is_some());
}

#[test]
fn client_id_must_fit_into_a_topic() {
    let topic = |id: &str| Takeover::new(id.to_owned(), 1).map(|of| of.topic().to_owned());
    assert_eq!(topic("s").as_deref(), Some("clients/s/services/statestore/instance"));
    for id in ["", "+", "a#"] {
        assert_eq!(topic(id), None);
    }
}
