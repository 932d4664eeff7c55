//! The eight clauses of the poll contract, for the client.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use statestore_fuzz_bodies::machines::{ClientOp, ClientRig, client_events};
use statestore_models::machines::{self, Args, script};
use statestore_proto::client::{Client, ClientConfig, Event, Outcome, Request, SubmitError};
use statestore_proto::limits::ClientLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::Command;
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::{Incoming, ReasonCode, Transmit};
use statestore_testkit::process::memory::{allocations, live_bytes};

type Op = (ClientOp, Args);

const fn polls(op: ClientOp) -> bool {
    matches!(op, ClientOp::PollEvents | ClientOp::PollPackets)
}

/// Operations without polls.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = machines::ops(|op| !polls(op));
    prop::collection::vec((op, any::<Args>()), 0..60)
}

/// Returns the events and packets, polled in full after each operation.
fn run(flags: u8, ops: &[Op]) -> (Vec<String>, Vec<String>) {
    let mut rig = ClientRig::new(flags);
    for op in ops {
        rig.apply(*op);
        rig.drain();
    }
    (rig.events, rig.sent)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn clause_1_any_order_of_calls_is_accepted(
        honest in prop::sample::select(&[0_u8, 1, 8, 9][..]),
        ops in ops(),
        polls in prop::collection::vec(any::<u8>(), 60),
    ) {
        let mut rig = ClientRig::new(honest);
        for (op, poll) in ops.iter().zip(&polls) {
            rig.apply(*op);
            // Packets are polled after each operation, since polling later may send fewer. Events
            // are polled at any time.
            if poll & 1 == 0 {
                rig.apply((ClientOp::PollEvents, [poll >> 1, 0, 0, 0, 0]));
            }
            for _ in 0..40 {
                rig.apply((ClientOp::PollPackets, [7, 0, 0, 0, 0]));
            }
        }
        rig.drain();
        let (events, sent) = run(honest, &ops);
        prop_assert_eq!((&rig.events, &rig.sent), (&events, &sent));
    }

    #[test]
    fn clause_3_deadlines_advance_after_each_timeout(
        flags in 0_u8..16,
        ops in ops(),
        start in prop::sample::select(&[0_u64, u64::MAX - 3_000][..]),
    ) {
        let mut rig = ClientRig::new(flags);
        rig.start_at(start);
        for op in ops {
            rig.apply(op);
            rig.drain();
            if let Some(due) = rig.client.poll_timeout() {
                let due = Now::new(due.max(rig.now.instant), rig.now.unix);
                rig.client.handle(due, Input::Timeout);
                rig.now = due;
                prop_assert!(rig.client.poll_timeout().is_none_or(|next| next > due.instant));
            }
        }
    }

    #[test]
    fn clause_4_early_is_harmless(flags in 0_u8..16, ops in ops()) {
        let mut rig = ClientRig::new(flags);
        for op in &ops {
            if rig.client.poll_timeout().is_none_or(|due| due > rig.now.instant) {
                let before = state(&rig.client);
                rig.client.handle(rig.now, Input::Timeout);
                rig.client.handle(rig.now, Input::Timeout);
                prop_assert_eq!(before, state(&rig.client));
            }
            rig.apply(*op);
            rig.drain();
        }
        let (events, sent) = run(flags, &ops);
        prop_assert_eq!((&rig.events, &rig.sent), (&events, &sent));
    }

    #[test]
    fn clause_5_queues_are_bounded(
        honest in prop::sample::select(&[0_u8, 1, 8, 9][..]),
        ops in ops(),
    ) {
        // Small limits, nothing polled. The rig checks that `submit` returns `Full` exactly at the
        // limit.
        let mut rig = ClientRig::new(honest | 2);
        for op in ops.iter().cycle().take(300) {
            rig.apply(*op);
        }
        prop_assert!(rig.client.outstanding() <= 2);
        let events = rig.drain();
        // Both limits, one per lagging watch, and one for a replaced store.
        prop_assert!(events <= 2 * 2 + 3 + 1, "{events} events");
    }

    #[test]
    fn clause_6_each_input_is_completed_exactly_once(data in script(1, |_: ClientOp| true, 80)) {
        client_events(&data);
    }

    #[test]
    fn clause_7_invalid_input_does_not_affect_other_requests(
        ops in ops(),
        hostile in prop::collection::vec(any::<Args>(), 60),
    ) {
        let mut rig = ClientRig::new(1);
        for (op, hostile) in ops.iter().zip(&hostile) {
            rig.apply((ClientOp::AnyMessage, *hostile));
            rig.apply(*op);
            rig.drain();
        }
        let (events, sent) = run(1, &ops);
        let is_matched = |event: &String| !event.starts_with("Unmatched(");
        rig.events.retain(is_matched);
        let events: Vec<String> = events.into_iter().filter(is_matched).collect();
        prop_assert_eq!((&rig.events, &rig.sent), (&events, &sent));
    }

    #[test]
    fn clause_7_a_malformed_reply_ends_its_request_only(
        which in 0_usize..5,
        payload in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut client = ready();
        let ids: Vec<_> = (0..5).map(|_| client.submit(at(1), get()).unwrap()).collect();
        let sent: Vec<_> = std::iter::from_fn(|| client.poll_transmit()).collect();
        let Transmit::Publish(request) = &sent[which] else { panic!("{sent:?}") };
        let (topic, payload) = (request.response_topic.clone().unwrap(), Bytes::from(payload));
        let mut reply = Incoming::new(&topic, &payload);
        reply.correlation_data = request.correlation_data.as_ref().map(|data| data.as_bytes());
        client.handle(at(1), Input::Message(&reply));
        let Some(Event::Completed { id, .. }) = client.poll_event() else {
            panic!("the reply completes the request")
        };
        prop_assert_eq!((id, client.outstanding()), (ids[which], 4));
        prop_assert_eq!(client.poll_event(), None);
    }

    #[test]
    fn clause_8_equal_inputs_give_equal_outputs(flags in 0_u8..16, ops in ops()) {
        prop_assert_eq!(run(flags, &ops), run(flags, &ops));
    }
}

/// Returns the state without the time of the latest input, which every call sets.
fn state(client: &Client) -> String {
    format!("{client:?}").split(", now: ").next().unwrap_or_default().to_owned()
}

fn at(millis: u64) -> Now {
    Now::new(Instant::from_millis(millis), UnixTime::from_millis(1_000_000 + millis))
}

fn get() -> Request {
    Request::new(Command::Get { key: Bytes::from_static(b"k") })
}

fn config() -> ClientConfig {
    ClientConfig::new("client", *b"noncenon")
}

fn connect(client: &mut Client) {
    client.handle(at(1), Input::Connected { session_present: false });
    while let Some(transmit) = client.poll_transmit() {
        if let Transmit::Subscribe { token, .. } = transmit {
            client.handle(at(1), Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
        }
    }
    while client.poll_event().is_some() {}
}

fn ready() -> Client {
    let mut client = Client::new(config()).unwrap();
    connect(&mut client);
    client
}

#[test]
fn clause_2_idle_is_free() {
    for outstanding in [0, 10_000] {
        for connected in [false, true] {
            let limits = ClientLimits {
                pending_max: 20_000,
                watches_max: 20_000,
                ..ClientLimits::default()
            };
            let mut client = Client::new(config().limits(limits)).unwrap();
            for number in 0..outstanding {
                client.submit(at(1), get()).unwrap();
                client.watch(at(1), Bytes::from(format!("key {number}"))).unwrap();
            }
            if connected {
                connect(&mut client);
            }
            let (before, state) = (allocations(), format!("{client:?}"));
            let printed = allocations() - before;
            let before = allocations();
            // Work per outstanding request would take billions of steps.
            for _ in 0..200_000 {
                assert!(client.poll_transmit().is_none() && client.poll_event().is_none());
                assert_eq!(client.poll_timeout().is_some(), outstanding > 0);
            }
            assert_eq!(allocations() - before, 0);
            assert!(printed > 0 && state == format!("{client:?}"), "a poll changed the state");
        }
    }
}

#[test]
fn clause_3_a_watch_at_the_end_of_time_does_not_spin() {
    let mut client = ready();
    let end = Now::new(Instant::from_millis(u64::MAX), UnixTime::from_millis(1_000_000));
    client.watch(end, Bytes::from_static(b"k")).unwrap();
    client.handle(end, Input::Timeout);
    assert!(client.poll_timeout().is_none_or(|next| next > end.instant));
}

#[test]
fn clause_5_submit_and_watch_return_full_at_the_limit() {
    let limits = ClientLimits { pending_max: 2, watches_max: 1, events_max: 1 };
    let mut client = Client::new(config().limits(limits)).unwrap();
    let first = client.submit(at(1), get()).unwrap();
    client.submit(at(1), get()).unwrap();
    assert_eq!(client.submit(at(1), get()), Err(SubmitError::Full));
    assert!(client.cancel(first));
    assert_eq!(
        client.submit(at(1), get()),
        Err(SubmitError::Full),
        "the completion was not polled yet"
    );
    let outcome = Outcome::Cancelled { sent: false };
    assert_eq!(client.poll_event(), Some(Event::Completed { id: first, outcome }));
    assert!(client.submit(at(1), get()).is_ok());
    client.watch(at(1), Bytes::from_static(b"a")).unwrap();
    assert_eq!(client.watch(at(1), Bytes::from_static(b"b")), Err(SubmitError::Full));
}

#[test]
fn clause_5_maximal_limits_do_not_overflow() {
    let limits =
        ClientLimits { pending_max: usize::MAX, watches_max: usize::MAX, events_max: usize::MAX };
    let mut client = Client::new(config().limits(limits)).unwrap();
    connect(&mut client);
    let stray = Bytes::from_static(b"x");
    client.handle(at(1), Input::Message(&Incoming::new("elsewhere", &stray)));
    assert!(matches!(client.poll_event(), Some(Event::Unmatched(_))));
}

#[test]
fn clause_5_memory_does_not_grow() {
    let limits = ClientLimits { pending_max: 8, watches_max: 8, events_max: 8 };
    let config = config().limits(limits).timeout(Duration::from_millis(20));
    let mut client = Client::new(config).unwrap();
    let mut millis = 1;
    let mut flood = |client: &mut Client| {
        let stray = Bytes::from_static(b"x");
        for round in 0..3_000 {
            millis += 1;
            let now = at(millis);
            let _ = client.submit(now, get());
            let _ = client.watch(now, Bytes::from(format!("key {}", round % 20)));
            client.handle(now, Input::Message(&Incoming::new("elsewhere", &stray)));
            client.handle(now, Input::Timeout);
            match round % 50 {
                10 => client.handle(now, Input::Connected { session_present: false }),
                40 => client.handle(now, Input::Disconnected),
                _ => {}
            }
            if round % 25 == 0 {
                let _ = client.poll_transmit();
                let _ = client.poll_event();
            }
        }
    };
    flood(&mut client);
    let before = live_bytes();
    flood(&mut client);
    let growth = live_bytes() - before;
    assert!(growth.abs() < 8_192, "{growth} bytes more after the second flood");
}
