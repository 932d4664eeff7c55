//! A store that says which one it is: what a client makes of another in its place.

use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Event, Outcome, Stale, WatchEnd, WatchEvent, WatchId};
use statestore_proto::limits::ClientLimits;
use statestore_proto::message::{Command, Incarnation, Reply};

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

/// A client with a live watch of a key with the value `v` and the version 5:0:s, of the store that says this.
fn live(incarnation: Option<&'static str>) -> (Rig, WatchId) {
    let mut rig = Rig::offline();
    rig.incarnation = incarnation;
    let id = rig.client.watch(rig.now(), K).unwrap();
    rig.connect();
    register(&mut rig);
    read(&mut rig, "$1\r\nv\r\n", Some("5:0:s"));
    // The first store that answers takes nobody's place.
    assert_eq!(rig.events(), [changed(id, Some("v"), Some("5:0:s")), is_live(id)]);
    (rig, id)
}

/// The application asks something, and the store that says this answers.
fn asks(rig: &mut Rig, incarnation: Option<&'static str>) {
    rig.submit(get());
    let request = rig.sent().0;
    rig.incarnation = incarnation;
    rig.reply(&request, "$-1\r\n", None);
}

#[test]
fn an_outcome_says_which_store_answered() {
    for (text, said) in [
        (Some(THREE), Some(Incarnation::new(0xfedc_ba98_7654_3210))),
        (None, None),
        (Some(""), None),
        (Some("FEDCBA9876543210"), None),
        (Some("+edcba9876543210"), None),
        (Some("fedcba987654321"), None),
        (Some("fedcba98765432100"), None),
    ] {
        let mut rig = Rig::ready();
        asks(&mut rig, text);
        let expected = Outcome::Replied { reply: Reply::Absent, version: None, incarnation: said };
        assert_eq!(rig.completed().1, expected, "{text:?}");
    }
}

#[test]
fn another_store_is_a_gap_before_anything_else_and_the_watch_begins_anew() {
    // It says which one it is, or that it does not say.
    for (before, after) in [(Some(ONE), Some(TWO)), (Some(ONE), None), (None, Some(TWO))] {
        let (mut rig, id) = live(before);
        asks(&mut rig, after);
        assert_eq!(rig.client.poll_event(), Some(replaced(after)));
        assert_eq!(rig.client.poll_event(), Some(gap(id)));
        rig.completed();
        register(&mut rig);
        read(&mut rig, "$-1\r\n", None);
        assert_eq!(rig.events(), [changed(id, None, None), is_live(id)]);
        // Its clock may be behind.
        rig.notify("k", Some("w"), Some("3:0:s"));
        assert_eq!(rig.events(), [changed(id, Some("w"), Some("3:0:s"))]);
        asks(&mut rig, after);
        rig.completed();
        assert_eq!((rig.events(), rig.client.poll_transmit()), (vec![], None));
    }
}

/// The same version of another store may be of another value.
#[test]
fn what_the_other_store_has_is_told_again() {
    let (mut rig, id) = live(Some(ONE));
    asks(&mut rig, Some(TWO));
    register(&mut rig);
    read(&mut rig, "$1\r\nw\r\n", Some("5:0:s"));
    let events = rig.events();
    assert!(events.starts_with(&[replaced(Some(TWO)), gap(id)]), "{events:?}");
    assert_eq!(events[3..], [changed(id, Some("w"), Some("5:0:s")), is_live(id)], "{events:?}");
}

#[test]
fn a_notification_of_another_store_is_heard_while_registering() {
    let (mut rig, id) = live(Some(ONE));
    rig.incarnation = Some(TWO);
    rig.notify("k", Some("b"), Some("7:0:s"));
    assert_eq!(rig.events(), [replaced(Some(TWO)), gap(id)]);
    register(&mut rig);
    // What it said may be newer than what is read.
    read(&mut rig, "$1\r\na\r\n", Some("6:0:s"));
    assert_eq!(rig.events(), [changed(id, Some("b"), Some("7:0:s")), is_live(id)]);
}

#[test]
fn a_notification_that_says_nothing_is_of_the_store_that_is_there() {
    let (mut rig, id) = live(Some(ONE));
    rig.incarnation = None;
    rig.notify("k", Some("b"), Some("7:0:s"));
    assert_eq!(rig.events(), [changed(id, Some("b"), Some("7:0:s"))]);
}

#[test]
fn a_notification_of_a_key_that_is_not_watched_says_it_too() {
    let (mut rig, id) = live(Some(ONE));
    rig.incarnation = Some(TWO);
    rig.notify("another", None, Some("7:0:s"));
    let stale = Event::Stale(Stale::Notification);
    assert_eq!(rig.events(), [replaced(Some(TWO)), gap(id), stale]);
}

#[test]
fn an_answer_that_is_no_more_waited_for_says_nothing() {
    let (mut rig, _) = live(Some(ONE));
    let id = rig.submit(get());
    let request = rig.sent().0;
    rig.client.cancel(id);
    rig.completed();
    rig.incarnation = Some(TWO);
    rig.reply(&request, "$-1\r\n", None);
    assert_eq!(rig.events(), [Event::Stale(Stale::Reply(id))]);
    assert_eq!(rig.client.poll_transmit(), None);
}

#[test]
fn a_watch_that_is_being_stopped_ends_and_one_that_waits_goes_on_waiting() {
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
    asks(&mut rig, Some(ONE));
    assert_eq!(rig.client.poll_event(), Some(replaced(Some(ONE))), "and no gap of {id:?}");
    rig.completed();
    assert_eq!((rig.client.poll_transmit(), rig.client.poll_timeout()), (None, again));
}

#[test]
fn a_watch_that_begins_meets_another_store() {
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
fn stores_that_answer_in_turn_are_followed_once_a_second() {
    let (mut rig, id) = live(Some(ONE));
    asks(&mut rig, Some(TWO));
    expect(&mut rig, &Command::Watch { key: K });
    for number in 0..100 {
        asks(&mut rig, Some([ONE, THREE][number % 2]));
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
    // After a while the next is followed at once.
    rig.pass(1_000);
    asks(&mut rig, Some(ONE));
    register(&mut rig);
}

#[test]
fn the_news_of_another_store_takes_no_room() {
    let limits = ClientLimits { pending_max: 1, watches_max: 1, events_max: 0 };
    let mut rig = Rig::with(config().limits(limits).timeout(Duration::from_secs(10)));
    rig.incarnation = Some(ONE);
    let id = rig.client.watch(rig.now(), K).unwrap();
    rig.connect();
    register(&mut rig);
    read(&mut rig, "$-1\r\n", None);
    // `Live` takes the only place, so that of the rest the last is told.
    for text in [TWO, ONE, THREE] {
        rig.incarnation = Some(text);
        rig.notify("another", None, Some("7:0:s"));
    }
    assert_eq!(rig.events(), [is_live(id), replaced(Some(THREE)), gap(id)]);
}
