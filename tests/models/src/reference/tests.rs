use statestore_proto::message::{Command, Condition, Expiry, Notification, Refusal, Reply};
use statestore_proto::time::{Instant, Now, UnixTime};

use statestore_proto::limits::StoreLimits;

use super::clock::{self, Clock, Drift};
use super::{Notified, ReferenceStore, Request};

const NOW: u64 = 1_696_374_425_000;

fn at(millis: u64, client: &str, command: Command<Vec<u8>>) -> Request {
    Request {
        now: now(millis),
        client: client.into(),
        command,
        timestamp: Some(format!("{NOW}:0:CLIENT")),
        token: None,
        full: false,
    }
}

fn now(millis: u64) -> Now {
    Now::new(Instant::from_millis(millis), UnixTime::from_millis(NOW.saturating_add(millis)))
}

fn lock(holder: &str, lease: u64) -> Command<Vec<u8>> {
    Command::Set {
        key: b"lock".to_vec(),
        value: holder.into(),
        condition: Condition::IfAbsentOrEqual,
        expiry: Expiry::from_millis(lease),
    }
}

fn notified(client: &str, notification: Notification<Vec<u8>>, version: &str) -> Notified {
    let version = clock::parse(version).unwrap();
    Notified { client: client.into(), key: b"lock".to_vec(), notification, version }
}

#[test]
fn lock_is_acquired_renewed_expired_and_acquired_by_the_next() {
    let mut store = ReferenceStore::new(StoreLimits::default());
    let watch = Command::Watch { key: b"lock".to_vec() };
    assert_eq!(store.request(&at(0, "b", watch)).reply, Reply::Done);

    let taken = store.request(&at(0, "a", lock("a", 100)));
    let first = format!("{NOW}:1:StateStore");
    assert_eq!((taken.reply, taken.version), (Reply::Done, clock::parse(&first)));
    assert_eq!(taken.notified, [notified("b", Notification::Set(b"a".to_vec()), &first)]);

    let refused = store.request(&at(50, "b", lock("b", 100)));
    assert_eq!((refused.reply, refused.version), (Reply::NotApplied, clock::parse(&first)));
    assert!(refused.notified.is_empty());

    let renewed = store.request(&at(60, "a", lock("a", 100)));
    assert_eq!(
        renewed.version.map(|version| clock::text(&version)),
        Some(format!("{}:0:StateStore", NOW + 60))
    );

    let last = format!("{}:0:StateStore", NOW + 60);
    assert!(store.expire_notifying(now(159)).is_empty(), "it lives until the last millisecond");
    let next = store.request(&at(160, "b", lock("b", 100)));
    assert_eq!(next.reply, Reply::Done);
    let own = format!("{}:0:StateStore", NOW + 160);
    let expected = [
        notified("b", Notification::Deleted, &last),
        notified("b", Notification::Set(b"b".to_vec()), &own),
    ];
    assert_eq!(next.notified, expected);

    store.client_gone("b");
    let expired = store.expire_notifying(now(u64::MAX));
    assert!(expired.is_empty() && store.entries.is_empty(), "expired without a notification");
}

#[test]
fn fence_is_deleted_with_its_key() {
    let mut store = ReferenceStore::new(StoreLimits::default());
    let set = |value: &str| Command::Set {
        key: b"k".to_vec(),
        value: value.into(),
        condition: Condition::Always,
        expiry: None,
    };
    let with = |token: &str, command| Request { token: Some(token.into()), ..at(0, "a", command) };
    let del = || Command::Del { key: b"k".to_vec() };
    assert_eq!(store.request(&with("5:0:s", set("v"))).reply, Reply::Done);
    let refused = |refusal: Refusal| Reply::Error(refusal.into());
    assert_eq!(store.request(&at(0, "a", set("w"))).reply, refused(Refusal::FencingTokenRequired));
    assert_eq!(store.request(&with("4:9:s", set("w"))).reply, refused(Refusal::FencingTokenLower));
    assert_eq!(store.request(&with("x", del())).reply, refused(Refusal::MalformedTimestamp));
    assert_eq!(store.request(&with("6:0:s", set("w"))).reply, Reply::Done);
    assert_eq!(store.request(&with("5:0:s", del())).reply, refused(Refusal::FencingTokenLower));
    assert_eq!(store.request(&with("6:0:s", del())).reply, Reply::Removed);
    assert_eq!(store.request(&at(0, "a", set("x"))).reply, Reply::Done);
}

#[test]
fn version_is_greater_than_timestamp_token_and_earlier_versions() {
    let mut store = ReferenceStore::new(StoreLimits::default());
    let set = Command::Set {
        key: b"k".to_vec(),
        value: b"v".to_vec(),
        condition: Condition::Always,
        expiry: None,
    };
    let ahead = format!("{}:7:c", NOW + 60_000);
    let request = Request { token: Some(ahead), ..at(0, "a", set) };
    let first = store.request(&request).version.unwrap();
    assert_eq!(first, (NOW + 60_000, 8, "StateStore".into()));
    assert_eq!(store.request(&request).version.unwrap(), (NOW + 60_000, 9, "StateStore".into()));
}

#[test]
fn receive_follows_its_four_cases() {
    let other = |wall, counter| (wall, counter, "c".to_owned());
    let node = "n".to_owned();
    let mut clock = Clock::new("n", 10);
    assert_eq!(clock.receive(7, &other(6, 4)), Ok((7, 0, node.clone())), "the wall clock leads");
    assert_eq!(clock.receive(7, &other(7, 4)), Ok((7, 5, node.clone())), "equal in wall");
    assert_eq!(clock.receive(5, &other(6, 9)), Ok((7, 6, node.clone())), "own ahead");
    assert_eq!(clock.receive(5, &other(9, 9)), Ok((9, 10, node.clone())), "the other ahead");
    assert_eq!(clock.tick(9), Ok((9, 11, node.clone())));
    assert_eq!(clock.receive(5, &other(16, 0)), Err(Drift(11)));
    assert_eq!(clock.tick(10), Ok((10, 0, node.clone())), "a refusal changes nothing");
    assert_eq!(clock.receive(10, &other(10, 2_147_483_647)), Ok((11, 0, node)));
}

#[test]
fn clock_value_has_exactly_three_parts() {
    assert_eq!(clock::parse("007:08:n"), Some((7, 8, "n".into())));
    for malformed in
        ["", "1:2", "1:2:", "1:2:n:m", "+1:2:n", ":2:n", "1: 2:n", "18446744073709551616:0:n"]
    {
        assert_eq!(clock::parse(malformed), None, "{malformed}");
    }
}
