//! The eight clauses of the poll contract, for the store.

use proptest::prelude::*;
use statestore_fuzz_bodies::machines::{StoreInput, StoreOp, StoreScript};
use statestore_models::machines::request::{Sent, StoreRequest};
use statestore_models::machines::script;
use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition, Expiry};
use statestore_proto::store::{Counters, Durability, Record, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::Transmit;
use statestore_testkit::process::memory::{allocations, live_bytes};

fn scripts() -> impl Strategy<Value = Vec<u8>> {
    use StoreOp::{Hold, Persist, Puback, Raw, WallStep};
    script(1, |op| !matches!(op, Raw | WallStep | Puback | Hold | Persist), 50)
}

fn apply(store: &mut Store, now: Now, op: &StoreInput) {
    match op {
        StoreInput::Request(request) => _ = request.submit_to(now, store),
        StoreInput::Timer => store.handle(now, Input::Timeout),
        StoreInput::Gone(client) => store.handle(now, Input::ClientGone(client)),
        StoreInput::Published(..) | StoreInput::Hold(_) | StoreInput::Persist => {}
    }
}

/// All output of a store in order, records apart.
#[derive(Debug, Default, PartialEq, Eq)]
struct Output {
    sent: Vec<Transmit>,
    records: Vec<Record>,
    counters: Counters,
    contents: Vec<String>,
}

impl Output {
    /// Sorts by topic: output without a record may overtake output that waits for one, but
    /// acknowledgements keep their order. `machine_ops` checks the exact order.
    fn by_topic(mut self) -> Self {
        let rank = |sent: &Transmit| match sent {
            Transmit::Acknowledge(_) => None,
            other => Some(format!("{other:?}")),
        };
        self.sent.sort_by_key(rank);
        self
    }
}

fn persist(store: &mut Store, output: &mut Output) {
    if let Some(batch) = store.poll_records() {
        output.records.extend(batch.records);
        store.handle_persisted(batch.id);
    }
}

fn poll(store: &mut Store, output: &mut Output, most: usize) {
    output.sent.extend(std::iter::from_fn(|| store.poll_transmit()).take(most));
}

fn finish(mut store: Store, mut output: Output, now: Now) -> Output {
    persist(&mut store, &mut output);
    poll(&mut store, &mut output, usize::MAX);
    output.counters = *store.counters();
    output.contents = store.iter(now).map(|entry| format!("{entry:?} {:?}", entry.value)).collect();
    output
}

/// Runs the script and polls everything after each operation.
fn run(script: &StoreScript, seed: u64) -> Output {
    let (mut store, mut output, mut last) = (script.store(seed), Output::default(), Now::default());
    for (now, op) in &script.ops {
        apply(&mut store, *now, op);
        persist(&mut store, &mut output);
        poll(&mut store, &mut output, usize::MAX);
        last = *now;
    }
    finish(store, output, last)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clause_1_any_order_of_calls_is_accepted(
        data in scripts(),
        polls in prop::collection::vec(0_usize..4, 50),
    ) {
        // Small limits would refuse requests whose output is not polled in time, which is clause 5.
        let script = StoreScript::parse(&[&[data[0] & !1], &data[1..]].concat());
        let (mut store, mut output, mut last) = (script.store(7), Output::default(), Now::default());
        for ((now, op), most) in script.ops.iter().zip(polls.iter().cycle()) {
            apply(&mut store, *now, op);
            if most % 2 == 1 {
                persist(&mut store, &mut output);
            }
            poll(&mut store, &mut output, *most);
            last = *now;
        }
        prop_assert_eq!(finish(store, output, last).by_topic(), run(&script, 7).by_topic());
    }

    #[test]
    fn clause_3_deadlines_advance_after_each_timeout(data in scripts()) {
        let script = StoreScript::parse(&data);
        let mut store = script.store(7);
        for (now, op) in &script.ops {
            apply(&mut store, *now, op);
            let due = store.poll_timeout().map_or(now.instant, |due| due.max(now.instant));
            if store.poll_timeout().is_some_and(|first| first <= now.instant) || store.len() > 3 {
                let now = Now::new(due, now.unix);
                store.handle(now, Input::Timeout);
                prop_assert!(store.poll_timeout().is_none_or(|next| next > due));
            }
            while store.poll_transmit().is_some() {}
        }
    }

    #[test]
    fn clause_4_early_is_harmless(data in scripts()) {
        let script = StoreScript::parse(&data);
        let (mut store, mut output, mut last) = (script.store(7), Output::default(), Now::default());
        for (now, op) in &script.ops {
            if store.poll_timeout().is_none_or(|due| due > now.instant) {
                store.handle(*now, Input::Timeout);
                prop_assert!(store.poll_transmit().is_none());
            }
            apply(&mut store, *now, op);
            if matches!(op, StoreInput::Timer) {
                store.handle(*now, Input::Timeout);
            }
            persist(&mut store, &mut output);
            poll(&mut store, &mut output, usize::MAX);
            last = *now;
        }
        prop_assert_eq!(finish(store, output, last), run(&script, 7));
    }

    #[test]
    fn clause_5_queues_are_bounded(data in scripts()) {
        let script = StoreScript::parse(&[&[data[0] & 0x8f | 1], &data[1..]].concat());
        let (limits, mut store) = (script.limits(), script.store(7));
        for (now, op) in script.ops.iter().cycle().take(400) {
            let (ready, before) = (store.can_receive(), *store.counters());
            apply(&mut store, *now, op);
            prop_assert!(store.len() <= limits.keys_max && store.bytes() <= limits.bytes_max);
            prop_assert!(store.registrations() <= limits.registrations_max);
            if !ready && matches!(op, StoreInput::Request(_)) {
                prop_assert_eq!(store.counters().overloaded, before.overloaded + 1);
                prop_assert_eq!(store.counters().executed(), before.executed());
            }
        }
        let queued = std::iter::from_fn(|| store.poll_transmit()).count();
        prop_assert!(queued <= limits.outgoing_max, "{queued} packets");
    }

    #[test]
    fn clause_6_each_input_is_completed_exactly_once(data in scripts()) {
        let script = StoreScript::parse(&data);
        let mut store = script.store(7);
        for (now, op) in &script.ops {
            apply(&mut store, *now, op);
            persist(&mut store, &mut Output::default());
            let sent = Sent::drain(&mut store);
            let StoreInput::Request(request) = op else { continue };
            let replies = sent.iter().filter(|sent| matches!(sent, Sent::Reply { .. })).count();
            let silent = sent.len() == 1 || matches!(sent.first(), Some(Sent::Disconnect(_)));
            prop_assert_eq!(replies, usize::from(!silent), "{:?}", sent);
            let number = request.delivery.unwrap();
            prop_assert_eq!(sent.last(), Some(&Sent::Acknowledge(number)));
            let acknowledged = |sent: &&Sent| matches!(sent, Sent::Acknowledge(_));
            prop_assert_eq!(sent.iter().filter(acknowledged).count(), 1);
        }
    }

    #[test]
    fn clause_7_invalid_input_does_not_affect_other_requests(
        data in scripts(),
        hostile in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), any::<[u8; 3]>()), 50),
    ) {
        let script = StoreScript::parse(&data);
        let (mut store, mut output, mut last) = (script.store(7), Output::default(), Now::default());
        for ((now, op), (payload, choices)) in script.ops.iter().zip(&hostile) {
            // Skips valid commands: a client that may write can do damage without malformed input.
            if Command::decode(payload).is_err() {
                hostile_ask(payload, *choices).submit_to(*now, &mut store);
                persist(&mut store, &mut Output::default());
                while store.poll_transmit().is_some() {}
            }
            apply(&mut store, *now, op);
            persist(&mut store, &mut output);
            poll(&mut store, &mut output, usize::MAX);
            last = *now;
        }
        let (attacked, alone) = (finish(store, output, last), run(&script, 7));
        prop_assert_eq!((attacked.sent, attacked.contents), (alone.sent, alone.contents));
    }

    #[test]
    fn clause_8_equal_inputs_give_equal_outputs(data in scripts(), seed in any::<u64>()) {
        let script = StoreScript::parse(&data);
        let first = run(&script, 7);
        prop_assert_eq!(&first, &run(&script, 7));
        prop_assert_eq!(&first, &run(&script, seed), "the output depends on the hash seed");
    }
}

fn hostile_ask(payload: &[u8], [what, text, delivery]: [u8; 3]) -> StoreRequest {
    let mut request =
        StoreRequest::new("mallory", u64::from(delivery), &Command::Get { key: b"a" });
    request.payload = payload.to_vec().into();
    match what % 6 {
        0 => request.response_topic = None,
        1 => request.response_topic = Some("#".into()),
        2 => request.correlation = None,
        3 => request.source = Some("alice".into()),
        4 => request.topic = "elsewhere".into(),
        _ => request.verified = None,
    }
    let texts = [
        "",
        ":",
        "18446744073709551615:18446744073709551615:x",
        "1:1",
        "-1:0:x",
        "99999999999999999999:0:x",
    ];
    request.timestamp = Some(texts[usize::from(text) % texts.len()].into());
    request.token.clone_from(&request.timestamp);
    request
}

fn now(millis: u64) -> Now {
    Now::new(Instant::from_millis(millis), UnixTime::from_millis(1_000_000 + millis))
}

fn set(number: u64, key: &[u8], expiry: u64) -> StoreRequest {
    let expiry = Expiry::from_millis(expiry);
    StoreRequest::new(
        "alice",
        number,
        &Command::Set { key, value: b"value", condition: Condition::Always, expiry },
    )
}

#[test]
fn clause_2_idle_is_free() {
    for outstanding in [0_u64, 20_000] {
        let mut store = Store::new(StoreConfig::new(7).durability(Durability::All));
        for number in 0..outstanding {
            let key = number.to_be_bytes();
            set(number, &key, 1_000_000 + number).submit_to(now(1), &mut store);
            let watch = Command::Watch { key: key.as_slice() };
            StoreRequest::new("bob", number, &watch).submit_to(now(1), &mut store);
            let batch = store.poll_records().unwrap();
            store.handle_persisted(batch.id);
            while store.poll_transmit().is_some() {}
        }
        // A request that waits for its record is outstanding too, but without output yet.
        set(outstanding, b"waits", 0).submit_to(now(1), &mut store);
        let _batch = store.poll_records().unwrap();
        let (before, counters) = (allocations(), *store.counters());
        // So many polls that work per outstanding request would take billions of steps.
        for _ in 0..200_000 {
            assert!(store.poll_transmit().is_none() && store.poll_records().is_none());
            assert_eq!(store.poll_timeout().is_some(), outstanding > 0);
            assert!(store.can_receive());
        }
        assert_eq!((allocations() - before, *store.counters()), (0, counters));
    }
}

#[test]
fn clause_5_memory_is_constant_under_a_flood() {
    let limits = StoreLimits {
        keys_max: 16,
        registrations_max: 16,
        dedup_entries_max: 16,
        outgoing_max: 64,
        registrations_per_key_max: 8,
        ..StoreLimits::default()
    };
    let mut store = Store::new(StoreConfig::new(7).limits(limits));
    let mut number = 0;
    let mut flood = |store: &mut Store| {
        for _ in 0..5_000 {
            number += 1;
            let at = now(number);
            set(number, &number.to_be_bytes(), number % 40).submit_to(at, store);
            let key = (number % 50).to_be_bytes();
            StoreRequest::new("bob", number, &Command::Watch { key: key.as_slice() })
                .submit_to(at, store);
            StoreRequest::new("bob", number, &Command::Del { key: key.as_slice() })
                .submit_to(at, store);
            if number % 3 == 0 {
                while store.poll_transmit().is_some() {}
            }
            if number % 7 == 0 {
                store.handle(at, Input::Timeout);
            }
        }
    };
    flood(&mut store);
    let before = live_bytes();
    flood(&mut store);
    flood(&mut store);
    let growth = live_bytes() - before;
    assert!(growth.abs() < 16_384, "{growth} bytes more after the second flood");
    assert!(store.counters().refused() > 100 && store.counters().expired_values > 100);
}

#[test]
fn clause_5_unlimited_limits_do_not_overflow() {
    let limits = StoreLimits {
        keys_max: usize::MAX,
        bytes_max: usize::MAX,
        key_bytes_max: usize::MAX,
        value_bytes_max: usize::MAX,
        registrations_max: usize::MAX,
        registration_bytes_max: usize::MAX,
        registrations_per_key_max: usize::MAX,
        outgoing_max: usize::MAX,
        outgoing_bytes_max: usize::MAX,
        record_bytes_max: usize::MAX,
        dedup_entries_max: usize::MAX,
        dedup_bytes_max: usize::MAX,
        page_bytes_max: usize::MAX,
        page_work_max: usize::MAX,
        client_percent: u8::MAX,
        unverified_registrations_kept: core::time::Duration::MAX,
    };
    let mut store = Store::new(StoreConfig::new(7).limits(limits));
    set(1, b"k", 5).submit_to(now(1), &mut store);
    set(2, b"k", 5).submit_to(now(1), &mut store);
    assert!(store.can_receive());
    assert_eq!(store.poll_timeout(), Some(Instant::from_millis(6)));
    store.handle(now(6), Input::Timeout);
    assert_eq!((store.len(), store.poll_timeout()), (0, None));
}

#[test]
fn clause_3_the_greatest_instant_is_not_a_deadline() {
    let mut store = Store::new(StoreConfig::new(7));
    let end = Now::new(Instant::from_millis(u64::MAX), UnixTime::from_millis(1_000_000));
    set(1, b"k", u64::MAX).submit_to(now(5), &mut store);
    store.handle(end, Input::Timeout);
    assert!(store.poll_timeout().is_none_or(|next| next > end.instant));
    assert!(store.get(now(5), b"k").is_some());
}
