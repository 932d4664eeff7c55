//! Captures, valid and damaged.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use statestore_capture::{
    CaptureError, CapturedStore, Difference, Next, Played, Replay, next_frame,
};
use statestore_proto::store::{BatchId, Record, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::{PublishToken, Transmit};

use super::store::{StoreInput, StoreScript};

/// Output of a store so far.
#[derive(Default)]
struct Output {
    tokens: Vec<PublishToken>,
    batches: VecDeque<BatchId>,
    records: Vec<Record>,
    holds: bool,
}

impl Output {
    fn take(&mut self, store: &mut CapturedStore, is_odd: bool) {
        // The store distinguishes polling one record from polling all records.
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

/// Captures a run of the script, and a second store that restores the records of the first.
fn record(data: &[u8], redaction: Option<[u8; 16]>) -> Vec<u8> {
    let script = StoreScript::parse(data);
    let is_odd = data.len() % 2 == 1;
    let config = || -> StoreConfig {
        let config = script.config(7).explain(is_odd).durable_registrations(is_odd);
        config.durable_keys(|key| key.len() % 2 == 1)
    };
    let mut store = CapturedStore::capturing(config(), redaction);
    let mut output = Output::default();
    for (now, op) in &script.ops {
        match op {
            StoreInput::Request(ask) => {
                _ = store.handle_publish(*now, &ask.incoming());
            }
            op => play_op(&mut store, &mut output, *now, op),
        }
        output.take(&mut store, is_odd);
    }
    let mut capture = store.take_capture();
    let mut next = CapturedStore::capturing(config(), redaction);
    let now = script.ops.last().map_or_else(Now::default, |(now, _)| *now);
    output.records.iter().for_each(|record| next.restore(now, record));
    expire_all(&mut next, now);
    next.end_capture("all was done");
    capture.extend(next.take_capture());
    capture
}

/// Advances time until everything has expired.
fn expire_all(store: &mut CapturedStore, now: Now) {
    use statestore_proto::machine::{Input, Machine as _};
    let later = Now::new(
        Instant::from_millis(now.instant.as_millis() + 100_000),
        UnixTime::from_millis(now.unix.as_millis() + 100_000),
    );
    store.handle(later, Input::Connected { session_present: true });
    store.handle(later, Input::Timeout);
    Output::default().take(store, false);
}

fn play_op(store: &mut CapturedStore, output: &mut Output, now: Now, op: &StoreInput) {
    use statestore_proto::machine::{Input, Machine as _};
    match op {
        StoreInput::Request(_) => {}
        StoreInput::Timer => store.handle(now, Input::Timeout),
        StoreInput::Gone(client) => store.handle(now, Input::ClientGone(client)),
        StoreInput::Published(age, reason) => {
            if let Some(token) = output.tokens.iter().rev().nth(*age) {
                store.handle(now, Input::Published(*token, *reason));
            }
        }
        StoreInput::Hold(holds) => output.holds = *holds,
        StoreInput::Persist => output.persist(store, 1),
    }
}

/// Replays all frames.
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

/// Oracle: a replayed capture shows no difference, with its values or redacted, whichever way it
/// was redacted. A damaged capture is replayed as far as possible.
///
/// Input: that of [`store_ops`](super::store_ops). An odd length enables explanations and durable
/// registrations.
///
/// # Panics
/// If the replay differs.
pub fn captures(data: &[u8]) {
    let capture = record(data, None);
    let played = play_whole(&capture);
    assert_eq!(played.stores, 2);
    let redacted = record(data, Some([9; 16]));
    // The second store finds the replies of the first by the content of the requests, which
    // redaction changes.
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

/// Damages bytes inside of frames, with matching checksums.
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
