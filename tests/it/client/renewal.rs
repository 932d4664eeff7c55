//! Renewal of watches: lost registrations are restored, and missed changes are reported.

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{
    ClientConfig, Event, Request, Unmatched, WatchEnd, WatchEvent, WatchId, WatchPhase,
};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition, Incarnation, Refusal, ServiceError};
use statestore_proto::store::StoreConfig;
use statestore_proto::time::Instant;
use statestore_proto::transport::{Publish, ReasonCode};
use statestore_sim::{Clock, Faults, World};

use super::{Rig, config};

const K: Bytes = Bytes::from_static(b"k");

/// The renewal interval in milliseconds, before the share of each watch is deducted.
const INTERVAL: u64 = 25_600;

/// The share of the first watch.
const SHARE: u64 = INTERVAL / 256;

/// Takes the next request, which must have this command.
fn expect(rig: &mut Rig, command: &Command<Bytes>) -> Publish {
    let (publish, sent) = rig.sent();
    assert_eq!(sent, *command);
    publish
}

fn watch(rig: &mut Rig) -> Publish {
    expect(rig, &Command::Watch { key: K })
}

fn get(rig: &mut Rig) -> Publish {
    expect(rig, &Command::Get { key: K })
}

fn watch_events(rig: &mut Rig, id: WatchId) -> Vec<WatchEvent> {
    let of_watch = |event| match event {
        Event::Watch { id: other, event } if other == id => event,
        other => panic!("{other:?} is not of the watch"),
    };
    rig.events().into_iter().map(of_watch).collect()
}

fn changed(value: Option<&'static str>, version: Option<&str>) -> WatchEvent {
    let value = value.map(|value| Bytes::from_static(value.as_bytes()));
    WatchEvent::Changed { value, version: version.map(super::version) }
}

/// The incarnations of two stores.
const ONE: &str = "00000000000000a1";
const OTHER: &str = "00000000000000b2";

/// Returns a live watch of a key with the value `v` and the version 5:0:s, one millisecond before
/// its renewal.
fn almost_due() -> (Rig, WatchId) {
    almost_due_at(None)
}

fn almost_due_at(incarnation: Option<&'static str>) -> (Rig, WatchId) {
    let interval = Some(Duration::from_millis(INTERVAL));
    let mut rig = Rig::with(config().renew_watches(interval));
    rig.incarnation = incarnation;
    let id = rig.client.watch(rig.now(), K).unwrap();
    rig.connect();
    let registration = watch(&mut rig);
    rig.reply(&registration, "+OK\r\n", None);
    let read = get(&mut rig);
    rig.reply(&read, "$1\r\nv\r\n", Some("5:0:s"));
    assert_eq!(watch_events(&mut rig, id), [changed(Some("v"), Some("5:0:s")), WatchEvent::Live]);
    assert_eq!(rig.client.poll_timeout(), Some(Instant::from_millis(INTERVAL - SHARE)));
    rig.pass(INTERVAL - SHARE - 1);
    assert_eq!(rig.client.poll_transmit(), None);
    (rig, id)
}

/// Returns the same watch after the reply to KEYNOTIFY, and the GET of the renewal.
fn renewed() -> (Rig, WatchId, Publish) {
    renewed_at(None)
}

fn renewed_at(incarnation: Option<&'static str>) -> (Rig, WatchId, Publish) {
    let (mut rig, id) = almost_due_at(incarnation);
    rig.pass(1);
    let registration = watch(&mut rig);
    rig.reply(&registration, "+OK\r\n", None);
    let read = get(&mut rig);
    (rig, id, read)
}

#[test]
fn a_renewal_without_missed_changes_reports_nothing() {
    let (mut rig, id, read) = renewed();
    rig.reply(&read, "$1\r\nv\r\n", Some("5:0:s"));
    assert_eq!(watch_events(&mut rig, id), []);
    rig.pass(INTERVAL - SHARE);
    watch(&mut rig);
}

#[test]
fn changes_are_reported_during_a_renewal() {
    let (mut rig, id) = almost_due_at(Some(ONE));
    rig.pass(1);
    let registration = watch(&mut rig);
    rig.notify("k", Some("w"), Some("6:0:s"));
    rig.reply(&registration, "+OK\r\n", None);
    let read = get(&mut rig);
    rig.notify("k", None, Some("6:0:s"));
    // The store replied before the key was deleted.
    rig.reply(&read, "$1\r\nw\r\n", Some("6:0:s"));
    let expected = [changed(Some("w"), Some("6:0:s")), changed(None, Some("6:0:s"))];
    assert_eq!(watch_events(&mut rig, id), expected);
}

#[test]
fn without_incarnation_a_change_during_a_renewal_causes_a_gap() {
    // The store lost the registration, 6:0 was written, and 7:0 after the registration ...
    let (mut rig, id) = almost_due();
    rig.pass(1);
    let registration = watch(&mut rig);
    rig.notify("k", Some("b"), Some("7:0:s"));
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Gap]);
    assert_eq!(rig.client.watch_phase(id), Some(WatchPhase::Registering));
    rig.reply(&registration, "+OK\r\n", None);
    let read = get(&mut rig);
    rig.reply(&read, "$1\r\nb\r\n", Some("7:0:s"));
    let expected = [changed(Some("b"), Some("7:0:s")), WatchEvent::Live];
    assert_eq!(watch_events(&mut rig, id), expected);

    // ... or after the read, whose reply has the missed change.
    let (mut rig, id, read) = renewed();
    rig.notify("k", Some("b"), Some("7:0:s"));
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Gap]);
    assert_eq!(rig.client.watch_phase(id), Some(WatchPhase::Reading));
    rig.reply(&read, "$1\r\na\r\n", Some("6:0:s"));
    assert_eq!(watch_events(&mut rig, id), expected);
    rig.pass(INTERVAL - SHARE);

    // A late duplicate causes no gap.
    let registration = watch(&mut rig);
    rig.notify("k", Some("b"), Some("7:0:s"));
    assert_eq!(rig.events(), [Event::Unmatched(Unmatched::Notification)]);
    rig.reply(&registration, "+OK\r\n", None);
    let read = get(&mut rig);
    rig.reply(&read, "$1\r\nb\r\n", Some("7:0:s"));
    assert_eq!(watch_events(&mut rig, id), []);
}

#[test]
fn a_renewal_of_an_absent_key_causes_a_gap_only_without_incarnation() {
    for incarnation in [None, Some(ONE)] {
        let (mut rig, id) = almost_due_at(incarnation);
        rig.notify("k", None, Some("5:0:s"));
        assert_eq!(watch_events(&mut rig, id), [changed(None, Some("5:0:s"))]);
        rig.pass(1);
        let registration = watch(&mut rig);
        rig.reply(&registration, "+OK\r\n", None);
        let read = get(&mut rig);
        rig.reply(&read, "$-1\r\n", None);
        if incarnation.is_some() {
            assert_eq!(watch_events(&mut rig, id), []);
            continue;
        }
        // The key may have been set and deleted while the registration was lost.
        assert_eq!(watch_events(&mut rig, id), [WatchEvent::Gap]);
        let read = get(&mut rig);
        rig.reply(&read, "$-1\r\n", None);
        assert_eq!(watch_events(&mut rig, id), [WatchEvent::Live]);
        // The deleted value is still a duplicate.
        rig.notify("k", Some("v"), Some("5:0:s"));
        assert_eq!(rig.events(), [Event::Unmatched(Unmatched::Notification)]);
    }
}

/// A notification before the read does not show what else was missed before the read.
#[test]
fn a_change_before_the_renewal_does_not_hide_a_missed_one() {
    let (mut rig, id) = almost_due_at(Some(ONE));
    rig.notify("k", Some("w"), Some("6:0:s"));
    assert_eq!(watch_events(&mut rig, id), [changed(Some("w"), Some("6:0:s"))]);
    rig.pass(1);
    let registration = watch(&mut rig);
    rig.reply(&registration, "+OK\r\n", None);
    let read = get(&mut rig);
    rig.reply(&read, "$1\r\nx\r\n", Some("7:0:s"));
    assert_eq!(watch_events(&mut rig, id).first(), Some(&WatchEvent::Gap));
}

/// A notification of the old connection may come from a store that was replaced since.
#[test]
fn notifications_of_an_old_connection_do_not_override_a_read() {
    let mut rig = Rig::with(config());
    let id = rig.client.watch(rig.now(), K).unwrap();
    rig.connect();
    let registration = watch(&mut rig);
    rig.notify("k", Some("w"), Some("9:0:s"));
    rig.reply(&registration, "+OK\r\n", None);
    get(&mut rig);
    rig.disconnect();
    rig.events();
    rig.connect();
    let registration = watch(&mut rig);
    rig.reply(&registration, "+OK\r\n", None);
    let read = get(&mut rig);
    rig.reply(&read, "$1\r\na\r\n", Some("5:0:s"));
    assert_eq!(watch_events(&mut rig, id), [changed(Some("a"), Some("5:0:s")), WatchEvent::Live]);
}

#[test]
fn renewals_of_watches_are_spread_over_time() {
    let interval = Some(Duration::from_millis(INTERVAL));
    let mut rig = Rig::with(config().renew_watches(interval));
    for key in ["1", "2", "3"] {
        rig.client.watch(rig.now(), key).unwrap();
    }
    rig.connect();
    for _ in 0..6 {
        let (publish, command) = rig.sent();
        let reply = if matches!(command, Command::Get { .. }) { "$-1\r\n" } else { "+OK\r\n" };
        rig.reply(&publish, reply, None);
    }
    // The third is due first.
    let first = Instant::from_millis(INTERVAL - 3 * SHARE);
    assert_eq!(rig.client.poll_timeout(), Some(first));
}

#[test]
fn a_renewal_detects_that_the_store_wrongly_considered_the_client_gone() {
    let (mut rig, id, read) = renewed_at(Some(ONE));
    rig.reply(&read, "$1\r\nw\r\n", Some("6:0:s"));
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Gap]);
    let read = get(&mut rig);
    rig.reply(&read, "$1\r\nw\r\n", Some("6:0:s"));
    assert_eq!(watch_events(&mut rig, id), [changed(Some("w"), Some("6:0:s")), WatchEvent::Live]);
}

#[test]
fn a_renewal_that_reaches_a_new_store_restarts_the_watch() {
    // The new incarnation arrives in a notification, the KEYNOTIFY reply, or the GET reply.
    for first in 0..3 {
        let (mut rig, id) = almost_due_at(Some(ONE));
        rig.pass(1);
        let registration = watch(&mut rig);
        if first == 0 {
            rig.incarnation = Some(OTHER);
            rig.notify("k", Some("b"), Some("7:0:s"));
        } else {
            rig.incarnation = Some([OTHER, ONE][first - 1]);
            rig.reply(&registration, "+OK\r\n", None);
        }
        if first == 2 {
            let read = get(&mut rig);
            rig.incarnation = Some(OTHER);
            rig.reply(&read, "$1\r\nv\r\n", Some("5:0:s"));
        }
        let replaced = Event::StoreReplaced { incarnation: Incarnation::parse(OTHER) };
        let gap = Event::Watch { id, event: WatchEvent::Gap };
        assert_eq!(rig.events(), [replaced, gap], "and nothing before the gap");
        let registration = watch(&mut rig);
        rig.reply(&registration, "+OK\r\n", None);
        let read = get(&mut rig);
        rig.reply(&read, "$1\r\nb\r\n", Some("7:0:s"));
        assert_eq!(
            watch_events(&mut rig, id),
            [changed(Some("b"), Some("7:0:s")), WatchEvent::Live]
        );
        rig.pass(INTERVAL - SHARE);
        watch(&mut rig);
    }
}

#[test]
fn a_missed_change_is_reported_after_a_gap() {
    for (payload, version, event) in [
        ("$1\r\nw\r\n", Some("6:0:s"), changed(Some("w"), Some("6:0:s"))),
        ("$-1\r\n", None, changed(None, None)),
        // Another store, whose clock is behind.
        ("$1\r\nw\r\n", Some("4:0:s"), changed(Some("w"), Some("4:0:s"))),
    ] {
        let (mut rig, id, read) = renewed();
        rig.reply(&read, payload, version);
        assert_eq!(watch_events(&mut rig, id), [WatchEvent::Gap]);
        let read = get(&mut rig);
        rig.reply(&read, payload, version);
        assert_eq!(watch_events(&mut rig, id), [event, WatchEvent::Live]);
        rig.pass(INTERVAL - SHARE);
        watch(&mut rig);
    }
}

#[test]
fn a_failed_renewal_is_retried_and_reports_nothing() {
    let (mut rig, id) = almost_due();
    rig.pass(1);
    let registration = watch(&mut rig);
    let token = registration.token.unwrap();
    rig.client.handle(rig.now(), Input::Published(token, ReasonCode::NO_MATCHING_SUBSCRIBERS));
    rig.pass(999);
    assert_eq!(rig.client.poll_transmit(), None);
    rig.pass(1);
    watch(&mut rig);
    rig.pass(10_000);
    assert_eq!(rig.client.poll_transmit(), None, "it timed out");
    rig.pass(10_000);
    watch(&mut rig);
    assert_eq!(watch_events(&mut rig, id), [], "the reported state may still be current");
}

#[test]
fn a_refused_renewal_ends_the_watch() {
    let (mut rig, id) = almost_due();
    rig.pass(1);
    let registration = watch(&mut rig);
    rig.reply(&registration, "-ERR not authorized\r\n", None);
    let end = WatchEnd::Refused(ServiceError::Known(Refusal::NotAuthorized));
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Ended(end)]);
    assert_eq!(rig.client.poll_timeout(), None);
}

#[test]
fn disconnect_and_unwatch_end_a_renewal() {
    let (mut rig, id, _) = renewed();
    rig.disconnect();
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Gap]);
    assert_eq!(rig.client.poll_timeout(), None);
    let (mut rig, id) = almost_due();
    assert!(rig.client.unwatch(rig.now(), id));
    let stop = expect(&mut rig, &Command::Unwatch { key: K });
    rig.reply(&stop, "+OK\r\n", None);
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Ended(WatchEnd::Stopped)]);
    assert_eq!(rig.client.poll_timeout(), None);
}

#[test]
fn refresh_replaces_a_renewal_in_progress() {
    let (mut rig, id, _) = renewed();
    assert!(rig.client.refresh(rig.now(), id));
    let read = get(&mut rig);
    rig.reply(&read, "$1\r\nv\r\n", Some("5:0:s"));
    let expected = [WatchEvent::Gap, changed(Some("v"), Some("5:0:s")), WatchEvent::Live];
    assert_eq!(watch_events(&mut rig, id), expected);
    rig.pass(10_000);
    assert_eq!(rig.client.poll_transmit(), None, "nothing is left of the renewal");
}

/// Returns the events of a watch whose key is written before and after a restart of the store.
fn events_across_restart(renewal: Option<Duration>) -> Vec<WatchEvent> {
    let mut world = World::new(7, Faults::default(), StoreConfig::new(7));
    let config = ClientConfig::new("w", *b"noncenon").renew_watches(renewal);
    let watcher = world.add_configured(config, Clock::default()).unwrap();
    let writer = world.add_client("b", Clock::default()).unwrap();
    let set = |world: &mut World, value: &'static str| {
        world.run_for(Duration::from_secs(5));
        let (key, value) = (K, Bytes::from_static(value.as_bytes()));
        let (condition, expiry) = (Condition::Always, None);
        let (client, now) = world.client(writer).unwrap();
        let command = Command::Set { key, value, condition, expiry };
        client.submit(now, Request::new(command)).unwrap();
        world.run_for(Duration::from_secs(5));
    };
    set(&mut world, "before");
    let (client, now) = world.client(watcher).unwrap();
    client.watch(now, K).unwrap();
    set(&mut world, "again");
    world.replace_store(StoreConfig::new(8));
    set(&mut world, "after");
    set(&mut world, "and on");
    let events = std::iter::from_fn(|| world.poll_event(watcher));
    events
        .filter_map(|event| match event {
            Event::Watch { event, .. } => Some(event),
            _ => None,
        })
        .collect()
}

#[test]
fn renewal_detects_a_restarted_store() {
    let value = |event: &WatchEvent| match event {
        WatchEvent::Changed { value, .. } => format!("{:?}", value.as_deref().map(str::from_utf8)),
        other => format!("{other:?}"),
    };
    let printed =
        |renewal| events_across_restart(renewal).iter().map(value).collect::<Vec<_>>().join(" ");
    let before = "Some(Ok(\"before\")) Live Some(Ok(\"again\"))";
    assert_eq!(printed(None), before, "the new store has no registration");
    assert_eq!(
        printed(Some(Duration::from_secs(1))),
        format!("{before} Gap None Live Some(Ok(\"after\")) Some(Ok(\"and on\"))")
    );
}
