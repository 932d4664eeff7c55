//! Counters of the client: outcomes of requests by verb and reason, and events.

use bytes::Bytes;
use statestore_proto::client::{Event, Request};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Refusal, RequestKind};
use statestore_proto::transport::{Incoming, ReasonCode};

use super::watches::{K, read, register};
use super::{EPOCH, Rig, get, set};

/// Replies to a request and takes its completion.
fn complete(rig: &mut Rig, request: impl Into<Request>, payload: &'static str) {
    rig.submit(request);
    let publish = rig.published();
    rig.reply(&publish, payload, None);
    rig.completed();
}

#[test]
fn each_request_is_counted_once_by_verb_and_outcome() {
    const QUOTA: &str = "-ERR the quota has been exceeded\r\n";
    let mut rig = Rig::ready();
    let value = Bytes::from_static(b"v");
    for _ in 0..2 {
        complete(&mut rig, get(), "$1\r\nv\r\n");
        complete(&mut rig, get(), "$-1\r\n");
        complete(&mut rig, get(), "junk");
        complete(&mut rig, set(), "+OK\r\n");
        complete(&mut rig, set(), ":-1\r\n");
        complete(&mut rig, set(), QUOTA);
        complete(&mut rig, set(), "-ERR out of tea\r\n");
        complete(&mut rig, Request::new(Command::Del { key: K }), ":1\r\n");
        complete(&mut rig, Request::new(Command::Del { key: K }), ":0\r\n");
        complete(&mut rig, Request::new(Command::VDel { key: K, value: value.clone() }), ":-1\r\n");
        rig.submit(get());
        let token = rig.published().token.unwrap();
        rig.client.handle(rig.now(), Input::Published(token, ReasonCode::NO_MATCHING_SUBSCRIBERS));
        rig.completed();
        let id = rig.submit(get());
        assert!(rig.client.cancel(id));
        rig.completed();
        rig.submit(get());
        rig.pass(10_000);
        rig.completed();
        rig.submit(set());
        rig.published();
        rig.disconnect();
        rig.completed();
        rig.connect();
    }
    let counters = *rig.client.counters();
    assert_eq!(
        counters.to_string(),
        "GET applied 2, GET absent 2, GET undelivered 2, GET timed_out 2, GET cancelled 2, \
         GET malformed 2, \
         SET applied 2, SET not_applied 2, SET connection_lost 2, \
         SET refused (the quota has been exceeded) 2, SET refused 2, \
         DEL applied 2, DEL absent 2, VDEL not_applied 2, connections 3"
    );
    let sets = counters.of(RequestKind::Set);
    assert_eq!((sets.refused(), sets.refused_for(Refusal::QuotaExceeded)), (4, 2));
    assert_eq!(
        (sets.refused_for(Refusal::Syntax), counters.of(RequestKind::Get).refused()),
        (0, 0)
    );
    // Per verb: eight outcomes, each refusal, and unknown error texts. Five counters have no verb.
    let listed = RequestKind::ALL.len() * (8 + Refusal::ALL.len() + 1) + 5;
    assert_eq!(counters.iter().count(), listed);
}

#[test]
fn each_event_is_counted_once() {
    let mut rig = Rig::offline();
    assert_eq!(rig.client.counters().to_string(), "nothing");
    rig.incarnation = Some("00000000000000a1");
    rig.client.watch(rig.now(), K).unwrap();
    rig.connect();
    register(&mut rig);
    read(&mut rig, "$1\r\nv\r\n", Some("5:0:s"));
    rig.events();
    let junk = Bytes::from_static(b"junk");
    for round in 1..=2 {
        rig.client.handle(rig.now(), Input::Message(&Incoming::new("elsewhere", &junk)));
        // A client follows stores that reply in turn once a second only.
        rig.pass(1_000);
        let ahead = format!("{}:0:s", EPOCH + rig.millis + 60_001);
        rig.notify("k", Some("w"), Some(&ahead));
        // The store is replaced: the watch reports a gap and registers again.
        rig.incarnation = ["00000000000000b2", "00000000000000c3"].get(round - 1).copied();
        rig.submit(get());
        let publish = rig.published();
        rig.reply(&publish, "$-1\r\n", None);
        register(&mut rig);
        read(&mut rig, "$1\r\nv\r\n", Some("5:0:s"));
        let events = rig.events();
        let replaced = |event: &&Event| matches!(event, Event::StoreReplaced { .. });
        assert_eq!(events.iter().filter(replaced).count(), 1, "{events:?}");
    }
    let counters = rig.client.counters();
    assert_eq!((counters.connections, counters.stores_replaced, counters.unmatched), (1, 2, 2));
    assert_eq!((counters.gaps, counters.clock_drifts), (2, 2));
}
