//! Watches: registration, changes, gaps, end.

use bytes::Bytes;
use statestore_proto::client::{
    Event, SubmitError, Unmatched, WatchEnd, WatchEvent, WatchId, WatchPhase,
};
use statestore_proto::limits::ClientLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Refusal, ServiceError};
use statestore_proto::transport::{Publish, ReasonCode};

use super::{EPOCH, Rig, config, filter, response_topic, version};

pub(super) const K: Bytes = Bytes::from_static(b"k");

fn watch(rig: &mut Rig) -> WatchId {
    rig.client.watch(rig.now(), K).unwrap()
}

/// Takes the next request, which must have this command.
pub(super) fn expect(rig: &mut Rig, command: &Command<Bytes>) -> Publish {
    let (publish, sent) = rig.sent();
    assert_eq!(sent, *command);
    publish
}

pub(super) fn register(rig: &mut Rig) {
    let registration = expect(rig, &Command::Watch { key: K });
    rig.reply(&registration, "+OK\r\n", None);
}

pub(super) fn read(rig: &mut Rig, payload: &'static str, version: Option<&str>) {
    let read = expect(rig, &Command::Get { key: K });
    rig.reply(&read, payload, version);
}

/// A ready client with a live watch of an absent key.
fn live() -> (Rig, WatchId) {
    let mut rig = Rig::offline();
    let id = watch(&mut rig);
    rig.connect();
    register(&mut rig);
    read(&mut rig, "$-1\r\n", None);
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Live]);
    (rig, id)
}

/// Returns the events, all of which must belong to the watch.
fn watch_events(rig: &mut Rig, id: WatchId) -> Vec<WatchEvent> {
    let of_watch = |event| match event {
        Event::Watch { id: other, event } if other == id => event,
        other => panic!("{other:?} is not of the watch"),
    };
    rig.events().into_iter().map(of_watch).collect()
}

fn changed(value: Option<&'static str>, text: &str) -> WatchEvent {
    let value = value.map(|value| Bytes::from_static(value.as_bytes()));
    WatchEvent::Changed { value, version: Some(version(text)) }
}

#[test]
fn no_registration_is_sent_before_notifications_are_subscribed() {
    let mut rig = Rig::ready();
    let id = watch(&mut rig);
    let (filter, token) = rig.subscribe().unwrap();
    assert_eq!((filter, rig.client.poll_transmit()), (super::filter(), None));
    rig.client.handle(rig.now(), Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
    register(&mut rig);
    read(&mut rig, "$1\r\nv\r\n", Some("5:0:s"));
    assert_eq!(watch_events(&mut rig, id), [changed(Some("v"), "5:0:s"), WatchEvent::Live]);
    rig.client.watch(rig.now(), Bytes::from_static(b"second")).unwrap();
    assert!(matches!(rig.sent().1, Command::Watch { .. }), "one subscription serves all");
}

#[test]
fn watch_phase_follows_the_requests_of_a_watch() {
    // The phase, the number of watches, the number of requests.
    let status =
        |rig: &Rig, id| (rig.client.watch_phase(id), rig.client.watches(), rig.client.pending());
    let mut rig = Rig::offline();
    let id = watch(&mut rig);
    assert_eq!(status(&rig, id), (Some(WatchPhase::Waiting), 1, 0));
    rig.connect();
    assert_eq!(status(&rig, id), (Some(WatchPhase::Registering), 1, 1));
    register(&mut rig);
    assert_eq!(status(&rig, id), (Some(WatchPhase::Reading), 1, 1));
    let (second, third) = (rig.submit(super::get()), rig.submit(super::get()));
    assert_eq!(rig.client.pending(), 3);
    assert!(rig.client.cancel(second) && rig.client.cancel(third));
    read(&mut rig, "$-1\r\n", None);
    assert_eq!(status(&rig, id), (Some(WatchPhase::Live), 1, 0));
    let other = rig.client.watch(rig.now(), Bytes::from_static(b"other")).unwrap();
    assert_eq!(status(&rig, other), (Some(WatchPhase::Registering), 2, 1));
    assert!(rig.client.unwatch(rig.now(), id));
    assert_eq!(status(&rig, id), (Some(WatchPhase::Stopping), 2, 2));
    rig.sent();
    let stop = expect(&mut rig, &Command::Unwatch { key: K });
    rig.reply(&stop, "+OK\r\n", None);
    rig.events();
    assert_eq!(status(&rig, id), (None, 1, 1));
}

#[test]
fn a_connection_subscribes_to_both_topics_when_there_are_watches() {
    let mut rig = Rig::offline();
    watch(&mut rig);
    rig.client.handle(rig.now(), Input::Connected { session_present: false });
    let filters = [rig.subscribe().unwrap().0, rig.subscribe().unwrap().0];
    assert_eq!(filters, [response_topic(), filter()]);
}

#[test]
fn requests_continue_after_a_refused_notification_subscription() {
    let mut rig = Rig::ready();
    watch(&mut rig);
    let (filter, token) = rig.subscribe().unwrap();
    rig.client.handle(rig.now(), Input::Subscribed(token, ReasonCode::NOT_AUTHORIZED));
    let failed =
        Event::SubscribeFailed { filter: filter.into(), reason: ReasonCode::NOT_AUTHORIZED };
    assert_eq!(rig.events(), [failed]);
    rig.submit(super::get());
    expect(&mut rig, &Command::Get { key: K });
    assert_eq!(rig.client.poll_transmit(), None);
}

#[test]
fn every_change_is_reported_once() {
    let (mut rig, id) = live();
    rig.notify("k", Some("a"), Some("5:0:s"));
    rig.notify("k", Some("a"), Some("5:0:s"));
    rig.notify("k", None, Some("5:0:s"));
    rig.notify("k", None, Some("5:0:s"));
    rig.notify("k", Some("b"), Some("5:1:s"));
    rig.notify("k", Some("late"), Some("4:0:s"));
    let unmatched = Event::Unmatched(Unmatched::Notification);
    let event = |event| Event::Watch { id, event };
    assert_eq!(
        rig.events(),
        [
            event(changed(Some("a"), "5:0:s")),
            unmatched.clone(),
            event(changed(None, "5:0:s")),
            unmatched.clone(),
            event(changed(Some("b"), "5:1:s")),
            unmatched,
        ]
    );
}

#[test]
fn notifications_without_a_version_or_watch_are_unmatched() {
    let (mut rig, _) = live();
    rig.notify("k", Some("v"), None);
    rig.notify("k", Some("v"), Some("soon"));
    rig.notify("unwatched", Some("v"), Some("5:0:s"));
    assert_eq!(
        rig.events(),
        [
            Event::Unmatched(Unmatched::Notification),
            Event::Unmatched(Unmatched::Notification),
            Event::Unmatched(Unmatched::Notification)
        ]
    );
}

#[test]
fn a_notification_too_far_ahead_is_reported_with_the_drift() {
    let (mut rig, id) = live();
    let text = format!("{}:0:s", EPOCH + 60_001);
    rig.notify("k", Some("v"), Some(&text));
    let events = rig.events();
    assert!(matches!(events[0], Event::ClockDrift(_)), "{events:?}");
    assert_eq!(events[1..], [Event::Watch { id, event: changed(Some("v"), &text) }]);
}

#[test]
fn a_notification_while_reading_is_merged_with_the_read() {
    let (older, newer) = (Some("5:0:s"), Some("6:0:s"));
    // The value and version notified before the read, the reply to the read, the expected event.
    for (notified, read_payload, read_version, expected) in [
        ((Some("a"), older), "$1\r\nb\r\n", newer, Some(changed(Some("b"), "6:0:s"))),
        ((Some("a"), newer), "$1\r\nb\r\n", older, Some(changed(Some("a"), "6:0:s"))),
        ((None, older), "$1\r\nb\r\n", older, None),
        ((None, older), "$1\r\nb\r\n", newer, Some(changed(Some("b"), "6:0:s"))),
        ((None, newer), "$-1\r\n", None, None),
    ] {
        let mut rig = Rig::offline();
        let id = watch(&mut rig);
        rig.connect();
        register(&mut rig);
        let sent = expect(&mut rig, &Command::Get { key: K });
        rig.notify("k", notified.0, notified.1);
        rig.reply(&sent, read_payload, read_version);
        let mut all: Vec<_> = expected.into_iter().collect();
        all.push(WatchEvent::Live);
        assert_eq!(watch_events(&mut rig, id), all, "{notified:?} against {read_payload:?}");
    }
}

#[test]
fn a_value_notified_before_an_empty_read_causes_another_read() {
    let mut rig = Rig::offline();
    let id = watch(&mut rig);
    rig.connect();
    register(&mut rig);
    let sent = expect(&mut rig, &Command::Get { key: K });
    rig.notify("k", Some("a"), Some("5:0:s"));
    rig.reply(&sent, "$-1\r\n", None);
    assert_eq!(watch_events(&mut rig, id), []);
    read(&mut rig, "$1\r\na\r\n", Some("5:0:s"));
    assert_eq!(watch_events(&mut rig, id), [changed(Some("a"), "5:0:s"), WatchEvent::Live]);
}

#[test]
fn a_lost_connection_opens_a_gap_that_a_read_closes() {
    for (payload, text, expected) in [
        ("$1\r\na\r\n", Some("5:0:s"), vec![]),
        ("$1\r\nb\r\n", Some("6:0:s"), vec![changed(Some("b"), "6:0:s")]),
        // The value may have been overwritten before the deletion: the deleted version is unknown.
        ("$-1\r\n", None, vec![WatchEvent::Changed { value: None, version: None }]),
    ] {
        let (mut rig, id) = live();
        rig.notify("k", Some("a"), Some("5:0:s"));
        rig.disconnect();
        assert_eq!(watch_events(&mut rig, id), [changed(Some("a"), "5:0:s"), WatchEvent::Gap]);
        rig.disconnect();
        rig.connect();
        register(&mut rig);
        rig.disconnect();
        assert_eq!(watch_events(&mut rig, id), [], "one gap is reported once");
        rig.connect();
        let registration = expect(&mut rig, &Command::Watch { key: K });
        // A late duplicate does not restore a value that a later read does not find.
        rig.notify("k", Some("a"), Some("5:0:s"));
        rig.reply(&registration, "+OK\r\n", None);
        read(&mut rig, payload, text);
        assert_eq!(watch_events(&mut rig, id), [expected, vec![WatchEvent::Live]].concat());
    }
}

#[test]
fn failed_requests_of_a_watch_are_retried() {
    let mut rig = Rig::offline();
    let id = watch(&mut rig);
    rig.connect();
    expect(&mut rig, &Command::Watch { key: K });
    rig.pass(10_000);
    let rejected = expect(&mut rig, &Command::Watch { key: K });
    rig.client.handle(
        rig.now(),
        Input::Published(rejected.token.unwrap(), ReasonCode::NO_MATCHING_SUBSCRIBERS),
    );
    assert_eq!(rig.client.poll_transmit(), None, "no store is subscribed: retry later");
    rig.pass(10_000);
    register(&mut rig);
    read(&mut rig, "nonsense", None);
    rig.pass(10_000);
    register(&mut rig);
    read(&mut rig, "$1\r\nv\r\n", None);
    assert_eq!(rig.client.poll_transmit(), None, "a value without a version is unusable");
    rig.pass(10_000);
    register(&mut rig);
    read(&mut rig, "$-1\r\n", None);
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Live]);
    assert_eq!(rig.client.poll_timeout(), None);
}

#[test]
fn a_refused_registration_ends_the_watch() {
    let mut rig = Rig::offline();
    let id = watch(&mut rig);
    rig.connect();
    let registration = expect(&mut rig, &Command::Watch { key: K });
    rig.reply(&registration, "-ERR not authorized\r\n", None);
    let end = WatchEnd::Refused(ServiceError::Known(Refusal::NotAuthorized));
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Ended(end)]);
    assert!(!rig.client.unwatch(rig.now(), id));
    assert_ne!(watch(&mut rig), id, "the key is free again");
}

#[test]
fn unwatch_sends_stop_and_ends_the_watch() {
    let (mut rig, id) = live();
    assert_eq!(rig.client.watch(rig.now(), K), Err(SubmitError::AlreadyWatched));
    assert!(rig.client.unwatch(rig.now(), id) && !rig.client.unwatch(rig.now(), id));
    rig.notify("k", Some("v"), Some("5:0:s"));
    assert_eq!(rig.events(), [Event::Unmatched(Unmatched::Notification)]);
    let stop = expect(&mut rig, &Command::Unwatch { key: K });
    let again = watch(&mut rig);
    rig.reply(&stop, ":0\r\n", None);
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Ended(WatchEnd::Stopped)]);
    register(&mut rig);
    read(&mut rig, "$-1\r\n", None);
    assert_eq!(watch_events(&mut rig, again), [WatchEvent::Live]);
}

#[test]
fn unwatch_ends_the_watch_without_a_store() {
    let mut rig = Rig::offline();
    let id = watch(&mut rig);
    assert!(rig.client.unwatch(rig.now(), id));
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Ended(WatchEnd::Stopped)]);
    for lost in [true, false] {
        let (mut rig, id) = live();
        rig.client.unwatch(rig.now(), id);
        expect(&mut rig, &Command::Unwatch { key: K });
        if lost {
            rig.disconnect();
        } else {
            rig.pass(10_000);
        }
        assert_eq!(watch_events(&mut rig, id), [WatchEvent::Ended(WatchEnd::Stopped)]);
        assert_eq!(rig.client.poll_timeout(), None);
    }
}

fn with_events_max(events_max: usize) -> (Rig, WatchId) {
    let limits = ClientLimits { pending_max: 0, watches_max: 4, events_max };
    let mut rig = Rig::with(config().limits(limits));
    let id = watch(&mut rig);
    rig.connect();
    register(&mut rig);
    (rig, id)
}

#[test]
fn a_full_event_queue_causes_a_gap_and_a_read() {
    let (mut rig, id) = with_events_max(2);
    read(&mut rig, "$-1\r\n", None);
    for (value, text) in [("a", "5:0:s"), ("b", "6:0:s"), ("c", "7:0:s")] {
        rig.notify("k", Some(value), Some(text));
    }
    let expected = [WatchEvent::Live, changed(Some("a"), "5:0:s"), WatchEvent::Gap];
    assert_eq!(watch_events(&mut rig, id), expected);
    read(&mut rig, "$1\r\nc\r\n", Some("7:0:s"));
    assert_eq!(watch_events(&mut rig, id), [changed(Some("c"), "7:0:s"), WatchEvent::Live]);
}

#[test]
fn a_full_event_queue_does_not_repeat_an_open_gap() {
    let (mut rig, id) = with_events_max(1);
    read(&mut rig, "$1\r\na\r\n", Some("5:0:s"));
    assert_eq!(watch_events(&mut rig, id), [changed(Some("a"), "5:0:s")], "the queue was full");
    read(&mut rig, "$1\r\na\r\n", Some("5:0:s"));
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Live]);
}

#[test]
fn an_end_during_a_full_event_queue_is_reported_after_a_reconnect() {
    let (mut rig, id) = with_events_max(1);
    read(&mut rig, "$1\r\na\r\n", Some("5:0:s"));
    rig.client.unwatch(rig.now(), id);
    rig.disconnect();
    rig.client.handle(rig.now(), Input::Connected { session_present: false });
    rig.grant();
    let expected = [changed(Some("a"), "5:0:s"), WatchEvent::Ended(WatchEnd::Stopped)];
    assert_eq!(watch_events(&mut rig, id), expected);
    assert_eq!(rig.client.poll_transmit(), None);
}

#[test]
fn no_gap_follows_unwatch() {
    let (mut rig, id) = with_events_max(2);
    read(&mut rig, "$-1\r\n", None);
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Live]);
    for text in ["5:0:s", "6:0:s", "7:0:s"] {
        rig.notify("k", Some("v"), Some(text));
    }
    // Two changes are queued; the third was dropped because the queue was full.
    assert!(rig.client.unwatch(rig.now(), id));
    let stop = expect(&mut rig, &Command::Unwatch { key: K });
    let waited = [changed(Some("v"), "5:0:s"), changed(Some("v"), "6:0:s")];
    assert_eq!(watch_events(&mut rig, id), waited);
    rig.reply(&stop, "+OK\r\n", None);
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Ended(WatchEnd::Stopped)]);
}

/// Returns a watch whose GET is outstanding.
fn reading() -> (Rig, WatchId, Publish) {
    let mut rig = Rig::offline();
    let id = watch(&mut rig);
    rig.connect();
    register(&mut rig);
    let read = expect(&mut rig, &Command::Get { key: K });
    (rig, id, read)
}

#[test]
fn an_older_duplicate_does_not_replace_a_newer_notification_while_reading() {
    let (mut rig, id, read) = reading();
    rig.notify("k", Some("new"), Some("6:0:s"));
    rig.notify("k", Some("old"), Some("5:0:s"));
    assert_eq!(rig.events(), [Event::Unmatched(Unmatched::Notification)]);
    rig.reply(&read, "$3\r\nold\r\n", Some("5:0:s"));
    assert_eq!(watch_events(&mut rig, id), [changed(Some("new"), "6:0:s"), WatchEvent::Live]);
}

#[test]
fn a_late_duplicate_of_a_value_deleted_while_reading_is_unmatched() {
    let (mut rig, id, read) = reading();
    rig.notify("k", Some("gone"), Some("6:0:s"));
    rig.notify("k", None, Some("6:0:s"));
    rig.reply(&read, "$-1\r\n", None);
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Live]);
    rig.notify("k", Some("gone"), Some("6:0:s"));
    assert_eq!(rig.events(), [Event::Unmatched(Unmatched::Notification)]);

    // Also if the value was notified before the read was sent, and its deletion never.
    let mut rig = Rig::offline();
    let id = watch(&mut rig);
    rig.connect();
    let registration = expect(&mut rig, &Command::Watch { key: K });
    rig.notify("k", Some("gone"), Some("6:0:s"));
    rig.reply(&registration, "+OK\r\n", None);
    self::read(&mut rig, "$-1\r\n", None);
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Live]);
    rig.notify("k", Some("gone"), Some("6:0:s"));
    assert_eq!(rig.events(), [Event::Unmatched(Unmatched::Notification)]);
}

#[test]
fn an_undelivered_registration_is_retried_after_a_tenth_of_the_timeout() {
    let mut rig = Rig::offline();
    let id = watch(&mut rig);
    rig.connect();
    let registration = expect(&mut rig, &Command::Watch { key: K });
    let token = registration.token.unwrap();
    rig.client.handle(rig.now(), Input::Published(token, ReasonCode::NO_MATCHING_SUBSCRIBERS));
    rig.pass(999);
    assert_eq!(rig.client.poll_transmit(), None);
    rig.pass(1);
    register(&mut rig);
    read(&mut rig, "$-1\r\n", None);
    assert_eq!(watch_events(&mut rig, id), [WatchEvent::Live]);
}

#[test]
fn after_a_reconnect_lower_versions_are_reported_unless_the_session_was_kept() {
    for kept in [false, true] {
        let mut rig = Rig::with(config().keeps_session(kept));
        let id = watch(&mut rig);
        rig.connect();
        register(&mut rig);
        read(&mut rig, "$1\r\nv\r\n", Some("5:0:s"));
        rig.notify("k", None, Some("5:0:s"));
        rig.disconnect();
        rig.events();
        rig.client.handle(rig.now(), Input::Connected { session_present: kept });
        rig.grant();
        assert_eq!(rig.client.poll_event(), Some(Event::Ready));
        register(&mut rig);
        read(&mut rig, "$-1\r\n", None);
        assert_eq!(watch_events(&mut rig, id), [WatchEvent::Live]);
        // From a store whose clock is behind, or a late duplicate.
        rig.notify("k", Some("w"), Some("4:0:s"));
        if kept {
            assert_eq!(rig.events(), [Event::Unmatched(Unmatched::Notification)]);
        } else {
            assert_eq!(watch_events(&mut rig, id), [changed(Some("w"), "4:0:s")]);
        }
    }
}
