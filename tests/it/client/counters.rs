//! What a client counts: how each request ended, by verb and reason, and what it told.

use bytes::Bytes;
use statestore_proto::client::{Event, Request};
use statestore_proto::message::{Command, CommandKind, Refusal};
use statestore_proto::mqtt::{Incoming, ReasonCode};

use super::watches::{K, read, register};
use super::{EPOCH, Rig, get, set};

/// Answers a request and takes its completion.
fn answered(rig: &mut Rig, request: Request, payload: &'static str) {
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
        answered(&mut rig, get(), "$1\r\nv\r\n");
        answered(&mut rig, get(), "$-1\r\n");
        answered(&mut rig, get(), "junk");
        answered(&mut rig, set(), "+OK\r\n");
        answered(&mut rig, set(), ":-1\r\n");
        answered(&mut rig, set(), QUOTA);
        answered(&mut rig, set(), "-ERR out of tea\r\n");
        answered(&mut rig, Request::new(Command::Del { key: K }), ":1\r\n");
        answered(&mut rig, Request::new(Command::Del { key: K }), ":0\r\n");
        answered(&mut rig, Request::new(Command::VDel { key: K, value: value.clone() }), ":-1\r\n");
        rig.submit(get());
        let token = rig.published().token.unwrap();
        rig.client.handle_published(rig.now(), token, ReasonCode::NO_MATCHING_SUBSCRIBERS);
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
        "GET applied 2, GET absent 2, GET undelivered 2, GET timed_out 2, GET cancelled 2, GET malformed 2, \
         SET applied 2, SET not_applied 2, SET unknown 2, \
         SET refused (the quota has been exceeded) 2, SET refused 2, \
         DEL applied 2, DEL absent 2, VDEL not_applied 2, connections 3"
    );
    let sets = counters.of(CommandKind::Set);
    assert_eq!((sets.refused(), sets.refused_for(Refusal::QuotaExceeded)), (4, 2));
    assert_eq!(
        (sets.refused_for(Refusal::Syntax), counters.of(CommandKind::Get).refused()),
        (0, 0)
    );
    // Eight outcomes and each refusal, those with an unknown text too, of each verb; and what is of none.
    let listed = CommandKind::ALL.len() * (8 + Refusal::ALL.len() + 1) + 5;
    assert_eq!(counters.iter().count(), listed);
}

#[test]
fn what_is_told_is_counted() {
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
        rig.client.handle_publish(rig.now(), &Incoming::new("elsewhere", &junk));
        // Stores that take turns are followed once in a while only.
        rig.pass(1_000);
        let ahead = format!("{}:0:s", EPOCH + rig.millis + 60_001);
        rig.notify("k", Some("w"), Some(&ahead));
        // Another store answers: that is a gap, and the watch begins anew.
        rig.incarnation = ["00000000000000b2", "00000000000000c3"].get(round - 1).copied();
        rig.submit(get());
        let publish = rig.published();
        rig.reply(&publish, "$-1\r\n", None);
        register(&mut rig);
        read(&mut rig, "$1\r\nv\r\n", Some("5:0:s"));
        let told = rig.events();
        let replaced = |event: &&Event| matches!(event, Event::StoreReplaced { .. });
        assert_eq!(told.iter().filter(replaced).count(), 1, "{told:?}");
    }
    let counters = rig.client.counters();
    assert_eq!((counters.connections, counters.stores_replaced, counters.stale), (1, 2, 2));
    assert_eq!((counters.gaps, counters.clock_drifts), (2, 2));
}
