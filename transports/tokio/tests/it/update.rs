//! Edits, and late writes of previous holders that arrive during an edit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use statestore_loopback::{Hub, HubLink, Message};
use statestore_proto::client::{Client, ClientConfig, Request, WatchEvent};
use statestore_proto::hlc::FencingToken;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::{ReasonCode, Transmit};
use statestore_tokio::{
    Connected, Link, LinkError, LinkEvent, LockError, LockLost, LossReason, StateStore,
    StoreService, Update, VersionedValue,
};

use super::{client, service};

const KEY: &str = "count";

/// Selects the requests of an edit that late writes overtake.
type Is = fn(&Command<&[u8]>) -> bool;

/// A link that sends the next late write of another client just before each request of one kind.
struct Overtaken {
    link: HubLink,
    is: Is,
    late: HubLink,
    writes: VecDeque<Transmit>,
}

impl Link for Overtaken {
    type Message = Message;

    fn client_id(&self) -> &str {
        self.link.client_id()
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.late.connect().await?;
        self.link.connect().await
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        if let Transmit::Publish(publish) = &transmit
            && let Ok(command) = Command::decode(&publish.payload)
            && *command.key() == KEY.as_bytes()
            && (self.is)(&command)
            && let Some(write) = self.writes.pop_front()
        {
            self.late.try_send(write)?;
        }
        self.link.try_send(transmit)
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        self.link.next_event(messages).await
    }

    async fn disconnect(&mut self) {
        self.link.disconnect().await;
    }
}

/// Writes that a holder with this token has sent and that have not arrived yet.
fn late_writes(token: &FencingToken, count: usize) -> VecDeque<Transmit> {
    let now = Now::new(Instant::from_millis(1), UnixTime::from_millis(1));
    let mut sender = Client::new(ClientConfig::new("late", *b"8 random")).expect("a client id");
    sender.handle(now, Input::Connected { session_present: false });
    let Some(Transmit::Subscribe { token: subscribed, .. }) = sender.poll_transmit() else {
        panic!("a client subscribes first")
    };
    sender.handle(now, Input::Subscribed(subscribed, ReasonCode::GRANTED_QOS_1));
    for number in 0..count {
        let set = Request::set(KEY, format!("late{number}")).fencing_token(token.clone());
        sender.submit(now, set).expect("capacity");
    }
    std::iter::from_fn(|| sender.poll_transmit()).collect()
}

/// A store, and a handle whose requests of one kind are overtaken by `count` late writes of a
/// previous holder. With `before`, that holder has written this value.
async fn overtaken(
    before: Option<&'static str>,
    count: usize,
    is: Is,
) -> (StoreService, StateStore, StateStore) {
    overtaken_with(before, count, is, FencingToken::clone).await
}

async fn overtaken_with(
    before: Option<&'static str>,
    count: usize,
    is: Is,
    token: impl FnOnce(&FencingToken) -> FencingToken,
) -> (StoreService, StateStore, StateStore) {
    let broker = Hub::new();
    let service = service(broker.store_link("statestore")).await;
    let earlier = client(broker.link("a")).await;
    let guard = earlier.lock("lock").acquire().await.unwrap();
    if let Some(value) = before {
        guard.set(KEY, value).await.unwrap();
    }
    let writes = late_writes(&token(&guard.token().expect("it is held")), count);
    guard.release().await.unwrap();
    let (link, late) = (broker.link("b"), broker.link("late"));
    let editor = client(Overtaken { link, is, late, writes }).await;
    (service, earlier, editor)
}

/// Appends a plus sign, or removes the key. Also returns the values that `change` received.
async fn edit(store: &StateStore, delete: bool) -> (Result<bool, LockError>, Vec<String>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let change = |found: Option<VersionedValue>| {
        let text = found
            .map_or_else(|| "-".into(), |found| String::from_utf8(found.value.to_vec()).unwrap());
        seen.lock().unwrap().push(text.clone());
        if delete { Update::Delete } else { Update::Set(format!("{text}+").into()) }
    };
    let edited = store.lock("lock").edit(KEY, change).await.map(|set| set.is_some());
    let seen = seen.lock().unwrap().clone();
    (edited, seen)
}

async fn value(store: &StateStore) -> Option<String> {
    let found = store.get(KEY).await.unwrap()?;
    Some(String::from_utf8(found.value.to_vec()).unwrap())
}

fn is_claim(command: &Command<&[u8]>) -> bool {
    matches!(command, Command::Set { condition: Condition::IfAbsentOrEqual, .. })
}

fn is_write(command: &Command<&[u8]>) -> bool {
    matches!(command, Command::Set { condition: Condition::Always, .. })
}

fn is_conditional(command: &Command<&[u8]>) -> bool {
    matches!(command, Command::Set { condition: Condition::IfAbsent, .. } | Command::VDel { .. })
}

#[tokio::test(start_paused = true)]
async fn late_write_before_the_claim_is_detected() {
    let (_service, earlier, editor) = overtaken(Some("v"), 1, is_claim).await;
    assert_eq!(edit(&editor, false).await, (Ok(true), vec!["v".into(), "late0".into()]));
    assert_eq!(value(&earlier).await.as_deref(), Some("late0+"));
}

#[tokio::test(start_paused = true)]
async fn late_write_after_the_claim_is_refused() {
    let (_service, earlier, editor) = overtaken(Some("v"), 1, is_write).await;
    let mut changes = earlier.watch(KEY).await.unwrap();
    assert_eq!(edit(&editor, false).await, (Ok(true), vec!["v".into()]));
    assert_eq!(value(&earlier).await.as_deref(), Some("v+"));
    let mut changed = Vec::new();
    while changed.last().is_none_or(|value| value != "v+") {
        if let WatchEvent::Changed { value: Some(value), .. } = changes.next().await.unwrap() {
            changed.push(value);
        }
    }
    assert_eq!(changed, ["v", "v", "v+"], "the previous value, the claim, the edit");
}

#[tokio::test(start_paused = true)]
async fn late_write_to_an_absent_key_is_detected() {
    let (_service, earlier, editor) = overtaken(None, 1, is_conditional).await;
    assert_eq!(edit(&editor, false).await, (Ok(true), vec!["-".into(), "late0".into()]));
    assert_eq!(value(&earlier).await.as_deref(), Some("late0+"));
}

#[tokio::test(start_paused = true)]
async fn late_write_before_a_deletion_is_detected() {
    let (service, earlier, editor) = overtaken(Some("v"), 1, is_conditional).await;
    assert_eq!(edit(&editor, true).await, (Ok(false), vec!["v".into(), "late0".into()]));
    assert_eq!(value(&earlier).await, None);
    assert_eq!(edit(&editor, true).await, (Ok(false), vec!["-".into()]), "nothing to delete");
    assert_eq!((service.stats().keys, service.stats().registrations), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn edit_fails_as_contested_after_eight_rounds() {
    let (service, earlier, editor) = overtaken(Some("v"), 100, is_claim).await;
    let (edited, seen) = edit(&editor, false).await;
    assert_eq!(edited, Err(LockError::EditContested));
    let expected = ["v", "late0", "late1", "late2", "late3", "late4", "late5", "late6"];
    assert_eq!(seen, expected);
    assert_eq!(value(&earlier).await.as_deref(), Some("late7"));
    assert_eq!(service.stats().keys, 1, "the lock is released");
}

#[tokio::test(start_paused = true)]
async fn edit_with_a_lost_lock_writes_nothing() {
    // The late write has a greater token, like that of a newer holder with a clock ahead.
    let ahead = |token: &FencingToken| {
        let wall = token.hlc().wall().as_millis() + 30_000;
        FencingToken::new(format!("{wall}:0:StateStore").parse().expect("a clock value"))
    };
    let (_service, earlier, editor) = overtaken_with(Some("v"), 1, is_claim, ahead).await;
    let (edited, seen) = edit(&editor, false).await;
    assert_eq!(edited, Err(LockError::Lost(LockLost::Lost(LossReason::FencedOut))));
    assert_eq!((seen, value(&earlier).await.as_deref()), (vec!["v".into()], Some("late0")));
}
