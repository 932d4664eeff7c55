//! Captures, and what is none.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use statestore_capture::{
    CaptureError, CapturedStore, Difference, Next, Played, Replay, next_frame,
};
use statestore_proto::store::{BatchId, Record, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::{PublishToken, Transmit};

use crate::machines::{StoreInput, StoreScript};

/// Output of a store so far.
#[derive(Default)]
struct Given {
    tokens: Vec<PublishToken>,
    batches: VecDeque<BatchId>,
    records: Vec<Record>,
    holds: bool,
}

impl Given {
    fn take(&mut self, store: &mut CapturedStore, is_odd: bool) {
        // Whether one record or all are taken makes a difference to the store.
        let take = |store: &mut CapturedStore| match is_odd {
            true => store.poll_records_within(1),
            false => store.poll_records(),
        };
        while let Some(batch) = take(store) {
            self.batches.push_back(batch.id);
            self.records.extend(batch.records);
        }
        if !self.holds {
            self.persist(store, usize::MAX);
        }
        while let Some(transmit) = store.poll_transmit() {
            if let Transmit::Publish(publish) = transmit {
                self.tokens.extend(publish.token);
            }
        }
    }

    fn persist(&mut self, store: &mut CapturedStore, count: usize) {
        let count = count.min(self.batches.len());
        self.batches.drain(..count).for_each(|id| store.handle_persisted(id));
    }
}

/// A capture of what the script does, and of a store that begins with what the one before has kept.
fn record(data: &[u8], redaction: Option<[u8; 16]>) -> Vec<u8> {
    let script = StoreScript::parse(data);
    let is_odd = data.len() % 2 == 1;
    let config = || -> StoreConfig {
        let config = script.config(7).explain(is_odd).durable_registrations(is_odd);
        config.durable_keys(|key| key.len() % 2 == 1)
    };
    let mut store = CapturedStore::capturing(config(), redaction);
    let mut given = Given::default();
    for (now, op) in &script.ops {
        match op {
            StoreInput::Ask(ask) => {
                _ = store.handle_publish(*now, &ask.incoming());
            }
            op => play_op(&mut store, &mut given, *now, op),
        }
        given.take(&mut store, is_odd);
    }
    let mut capture = store.take_capture();
    let mut next = CapturedStore::capturing(config(), redaction);
    let now = script.ops.last().map_or_else(Now::default, |(now, _)| *now);
    given.records.iter().for_each(|record| next.restore(now, record));
    use_up(&mut next, now);
    next.end_capture("all was done");
    capture.extend(next.take_capture());
    capture
}

/// Time passes that ends whatever ends.
fn use_up(store: &mut CapturedStore, now: Now) {
    use statestore_proto::machine::{Input, Machine as _};
    let later = Now::new(
        Instant::from_millis(now.instant.as_millis() + 100_000),
        UnixTime::from_millis(now.unix.as_millis() + 100_000),
    );
    store.handle(later, Input::Connected { session_present: true });
    store.handle(later, Input::Timeout);
    Given::default().take(store, false);
}

fn play_op(store: &mut CapturedStore, given: &mut Given, now: Now, op: &StoreInput) {
    use statestore_proto::machine::{Input, Machine as _};
    match op {
        StoreInput::Ask(_) => {}
        StoreInput::Timer => store.handle(now, Input::Timeout),
        StoreInput::Gone(client) => store.handle(now, Input::ClientGone(client)),
        StoreInput::Published(age, reason) => {
            if let Some(token) = given.tokens.iter().rev().nth(*age) {
                store.handle(now, Input::Published(*token, *reason));
            }
        }
        StoreInput::Hold(holds) => given.holds = *holds,
        StoreInput::Persist => given.persist(store, 1),
    }
}

/// Plays all of it.
fn play(capture: &[u8], replay: &mut Replay) -> (Vec<Difference>, Result<(), CaptureError>) {
    let (mut differences, mut rest) = (Vec::new(), capture);
    loop {
        match next_frame(rest) {
            Ok(Next::Frame(frame, behind)) => {
                rest = behind;
                match replay.play(frame) {
                    Ok(difference) => differences.extend(difference),
                    Err(error) => return (differences, Err(error)),
                }
            }
            Ok(Next::Part(needed)) => {
                assert!(needed > rest.len());
                return (differences, Ok(()));
            }
            Err(error) => return (differences, Err(error)),
        }
    }
}

fn play_whole(capture: &[u8]) -> Played {
    let mut replay = Replay::new();
    let (differences, played) = play(capture, &mut replay);
    let texts: Vec<_> =
        differences.iter().map(|it| (&it.after, &it.captured, &it.replayed)).collect();
    assert!(texts.is_empty(), "{texts:#?}");
    assert_eq!((played, replay.ended()), (Ok(()), Some("all was done")));
    replay.played()
}

/// A capture has no difference when it is played, with its values and with others in their place,
/// however these were replaced; and damaged, it is played to where it can be.
///
/// # Panics
/// When it does not hold.
pub fn captures(data: &[u8]) {
    let capture = record(data, None);
    let played = play_whole(&capture);
    assert_eq!(played.stores, 2);
    let redacted = record(data, Some([9; 16]));
    // The answers that an earlier store left are found by the content of their requests, which is
    // another then.
    let redacted_played = play_whole(&redacted);
    assert_eq!(redacted_played.messages, played.messages);
    let mut replay = Replay::redacting([9; 16]);
    let (differences, replayed) = play(&capture, &mut replay);
    assert!(differences.is_empty() && replayed == Ok(()));
    let copy = replay.take_capture();
    assert_eq!(play_whole(&copy), redacted_played);
    assert!(copy == redacted, "a copy is redacted as the capture itself would have been");
    damaged(data, capture);
}

/// Bytes of the capture are others, in frames that say that they are whole.
fn damaged(data: &[u8], mut capture: Vec<u8>) {
    let mut hasher = DefaultHasher::new();
    hasher.write(data);
    let mut random = fastrand::Rng::with_seed(hasher.finish());
    let mut at = 0;
    while let Ok(Next::Frame(_, behind)) = next_frame(&capture[at..]) {
        let end = capture.len() - behind.len();
        if random.u8(..4) == 0 {
            let place = random.usize(at + 8..end);
            capture[place] = random.u8(..);
            let mut hasher = siphasher::sip::SipHasher13::new();
            hasher.write(&capture[at + 8..end]);
            let checksum = hasher.finish().to_le_bytes();
            capture[at + 4..at + 8].copy_from_slice(&checksum[..4]);
        }
        at = end;
    }
    let _ = play(&capture, &mut Replay::new());
    let place = random.usize(..capture.len());
    capture[place] ^= 1;
    let _ = play(&capture, &mut Replay::new());
    capture.truncate(place);
    let _ = play(&capture, &mut Replay::new());
}
