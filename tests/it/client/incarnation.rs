//! Stores with an incarnation, and their replacement.

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Event, Outcome, Unmatched, WatchEnd, WatchEvent, WatchId};
use statestore_proto::limits::ClientLimits;
use statestore_proto::message::{Command, Incarnation, Reply, Response};

use super::watches::{K, expect, read, register};
use super::{Rig, config, get, version};

const ONE: &str = "00000000000000a1";
const TWO: &str = "00000000000000b2";
const THREE: &str = "fedcba9876543210";

fn replaced(text: Option<&str>) -> Event {
    Event::StoreReplaced { incarnation: text.and_then(Incarnation::parse) }
}

fn changed(id: WatchId, value: Option<&'static str>, text: Option<&str>) -> Event {
    let value = value.map(|value| Bytes::from_static(value.as_bytes()));
    Event::Watch { id, event: WatchEvent::Changed { value, version: text.map(version) } }
}

fn gap(id: WatchId) -> Event {
    Event::Watch { id, event: WatchEvent::Gap }
}

fn is_live(id: WatchId) -> Event {
    Event::Watch { id, event: WatchEvent::Live }
}

/// Returns a client with a live watch of a key with the value `v` and the version 5:0:s. The store
/// has this incarnation.
fn live(incarnation: Option<&'static str>) -> (Rig, WatchId) {
    let mut rig = Rig::offline();
    rig.incarnation = incarnation;
    let id = rig.client.watch(rig.now(), K).unwrap();
    rig.connect();
    register(&mut rig);
    read(&mut rig, "$1\r\nv\r\n", Some("5:0:s"));
    // The first store that replies replaces no other.
    assert_eq!(rig.events(), [changed(id, Some("v"), Some("5:0:s")), is_live(id)]);
    (rig, id)
}

/// Submits a GET, to which the store with this incarnation replies.
fn request(rig: &mut Rig, incarnation: Option<&'static str>) {
    rig.submit(get());
    let publish = rig.sent().0;
    rig.incarnation = incarnation;
    rig.reply(&publish, "$-1\r\n", None);
}

#[test]
fn an_outcome_has_the_incarnation_of_the_store() {
    for (text, incarnation) in [
        (Some(THREE), Some(Incarnation::new(0xfedc_ba98_7654_3210))),
        (None, None),
        (Some(""), None),
        (Some("FEDCBA9876543210"), None),
        (Some("+edcba9876543210"), None),
        (Some("fedcba987654321"), None),
        (Some("fedcba98765432100"), None),
    ] {
        let mut rig = Rig::ready();
        request(&mut rig, text);
        let expected = Outcome::Responded {
            response: Response::Reply(Reply::Absent),
            version: None,
            incarnation,
        };
        assert_eq!(rig.completed().1, expected, "{text:?}");
    }
}

#[test]
fn a_replaced_store_causes_a_gap_first_and_the_watch_registers_again() {
    // With an incarnation, and without one.
    for (before, after) in [(Some(ONE), Some(TWO)), (Some(ONE), None), (None, Some(TWO))] {
        let (mut rig, id) = live(before);
        request(&mut rig, after);
        assert_eq!(rig.client.poll_event(), Some(replaced(after)));
        assert_eq!(rig.client.poll_event(), Some(gap(id)));
        rig.completed();
        register(&mut rig);
        read(&mut rig, "$-1\r\n", None);
        assert_eq!(rig.events(), [changed(id, None, None), is_live(id)]);
        // The clock of the new store may be behind.
        rig.notify("k", Some("w"), Some("3:0:s"));
        assert_eq!(rig.events(), [changed(id, Some("w"), Some("3:0:s"))]);
        request(&mut rig, after);
        rig.completed();
        assert_eq!((rig.events(), rig.client.poll_transmit()), (vec![], None));
    }
}

/// The same version may belong to another value in another store.
#[test]
fn the_value_of_a_new_store_is_always_reported() {
    let (mut rig, id) = live(Some(ONE));
    request(&mut rig, Some(TWO));
    register(&mut rig);
    read(&mut rig, "$1\r\nw\r\n", Some("5:0:s"));
    let events = rig.events();
    assert!(events.starts_with(&[replaced(Some(TWO)), gap(id)]), "{events:?}");
    assert_eq!(events[3..], [changed(id, Some("w"), Some("5:0:s")), is_live(id)], "{events:?}");
}

#[test]
fn a_notification_of_a_new_store_counts_while_registering() {
    let (mut rig, id) = live(Some(ONE));
    rig.incarnation = Some(TWO);
    rig.notify("k", Some("b"), Some("7:0:s"));
    assert_eq!(rig.events(), [replaced(Some(TWO)), gap(id)]);
    register(&mut rig);
    // The notification may be newer than the reply to the read.
    read(&mut rig, "$1\r\na\r\n", Some("6:0:s"));
    assert_eq!(rig.events(), [changed(id, Some("b"), Some("7:0:s")), is_live(id)]);
}

#[test]
fn a_notification_without_incarnation_is_from_the_current_store() {
    let (mut rig, id) = live(Some(ONE));
    rig.incarnation = None;
    rig.notify("k", Some("b"), Some("7:0:s"));
    assert_eq!(rig.events(), [changed(id, Some("b"), Some("7:0:s"))]);
}

#[test]
fn a_notification_of_an_unwatched_key_reveals_a_new_store() {
    let (mut rig, id) = live(Some(ONE));
    rig.incarnation = Some(TWO);
    rig.notify("another", None, Some("7:0:s"));
    let unmatched = Event::Unmatched(Unmatched::Notification);
    assert_eq!(rig.events(), [replaced(Some(TWO)), gap(id), unmatched]);
}

#[test]
fn a_late_reply_reveals_no_new_store() {
    let (mut rig, _) = live(Some(ONE));
    let id = rig.submit(get());
    let request = rig.sent().0;
    rig.client.cancel(id);
    rig.completed();
    rig.incarnation = Some(TWO);
    rig.reply(&request, "$-1\r\n", None);
    assert_eq!(rig.events(), [Event::Unmatched(Unmatched::Reply(id))]);
    assert_eq!(rig.client.poll_transmit(), None);
}

#[test]
fn a_new_store_ends_a_stopping_watch_and_leaves_a_waiting_one_waiting() {
    let (mut rig, id) = live(Some(ONE));
    assert!(rig.client.unwatch(rig.now(), id));
    let stop = expect(&mut rig, &Command::Unwatch { key: K });
    rig.incarnation = Some(TWO);
    rig.reply(&stop, ":0\r\n", None);
    let end = Event::Watch { id, event: WatchEvent::Ended(WatchEnd::Stopped) };
    assert_eq!(rig.events(), [replaced(Some(TWO)), end]);

    let id = rig.client.watch(rig.now(), K).unwrap();
    let registration = expect(&mut rig, &Command::Watch { key: K });
    rig.reply(&registration, "nonsense", None);
    let again = rig.client.poll_timeout();
    request(&mut rig, Some(ONE));
    assert_eq!(rig.client.poll_event(), Some(replaced(Some(ONE))), "and no gap of {id:?}");
    rig.completed();
    assert_eq!((rig.client.poll_transmit(), rig.client.poll_timeout()), (None, again));
}

#[test]
fn a_new_store_restarts_a_watch_that_is_reading() {
    let mut rig = Rig::offline();
    let id = rig.client.watch(rig.now(), K).unwrap();
    rig.connect();
    rig.incarnation = Some(ONE);
    register(&mut rig);
    rig.incarnation = Some(TWO);
    read(&mut rig, "$1\r\nv\r\n", Some("5:0:s"));
    assert_eq!(rig.events(), [replaced(Some(TWO))], "a watch begins with a gap");
    register(&mut rig);
    read(&mut rig, "$1\r\nv\r\n", Some("5:0:s"));
    assert_eq!(rig.events(), [changed(id, Some("v"), Some("5:0:s")), is_live(id)]);
}

#[test]
fn watches_follow_stores_that_reply_in_turn_once_a_second() {
    let (mut rig, id) = live(Some(ONE));
    request(&mut rig, Some(TWO));
    expect(&mut rig, &Command::Watch { key: K });
    for number in 0..100 {
        request(&mut rig, Some([ONE, THREE][number % 2]));
        rig.pass(9);
        assert!(rig.client.poll_transmit().is_none(), "after {number} changes");
    }
    let events = rig.events();
    assert_eq!(events[..2], [replaced(Some(TWO)), gap(id)]);
    let of_watch = |event: &&Event| matches!(event, Event::Watch { .. });
    assert_eq!(events.iter().filter(of_watch).count(), 1, "the gap is open");
    rig.pass(1_000);
    register(&mut rig);
    read(&mut rig, "$1\r\nv\r\n", Some("5:0:s"));
    assert_eq!(rig.events(), [changed(id, Some("v"), Some("5:0:s")), is_live(id)]);
    // After a second the client follows the next one at once.
    rig.pass(1_000);
    request(&mut rig, Some(ONE));
    register(&mut rig);
}

#[test]
fn store_replaced_is_reported_even_if_the_event_queue_is_full() {
    let limits = ClientLimits { pending_max: 1, watches_max: 1, events_max: 0 };
    let mut rig = Rig::with(config().limits(limits).timeout(Duration::from_secs(10)));
    rig.incarnation = Some(ONE);
    let id = rig.client.watch(rig.now(), K).unwrap();
    rig.connect();
    register(&mut rig);
    read(&mut rig, "$-1\r\n", None);
    // `Live` fills the queue, so only the last replacement is reported.
    for text in [TWO, ONE, THREE] {
        rig.incarnation = Some(text);
        rig.notify("another", None, Some("7:0:s"));
    }
    assert_eq!(rig.events(), [is_live(id), replaced(Some(THREE)), gap(id)]);
}
