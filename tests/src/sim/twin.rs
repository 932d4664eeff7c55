//! Worlds that are broken on purpose: a checker that says nothing about its twin proves nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use statestore_loopback::{Detain, Flaw, Message, Tamper};
use statestore_proto::hlc::{Hlc, HlcRef};
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, property};
use statestore_proto::mqtt::Correlation;
use statestore_proto::time::UnixTime;
use statestore_proto::topic;

/// What is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Twin {
    /// Nothing.
    #[default]
    Sound,
    /// Every token becomes the greatest one seen so far, so that none is ever too old: as if the fence were open.
    OpenFence,
    /// The store remembers no answers.
    NoReplyCache,
    /// A client's second and later KEYNOTIFY for a key goes to a key that nobody writes: as if it never registered
    /// again.
    NoReregistration,
    /// A read is answered with what the same key was read as before.
    StaleReads,
    /// The store says that writes are done before they are persisted.
    EarlyRelease,
    /// The store knows no limits.
    NoLimits,
    /// Requests are handed to the store whether or not it is ready.
    NeverAsks,
    /// The store's clock goes back once, so that versions do.
    ClockGoesBack,
    /// Nobody says that a request had waited, so that it is done when its client has long given it up.
    NoArrival,
    /// A store that takes over is thought to know what was persisted, and knows nothing.
    Amnesia,
    /// The journal keeps no answers.
    ForgetsAnswers,
    /// The journal keeps no registrations, and nobody hears of another incarnation.
    ForgetsWatches,
    /// The journal keeps no versions but those of values that are there.
    ForgetsVersions,
    /// No store says which incarnation it is.
    NoIncarnation,
    /// Some notifications come after what was sent behind them.
    LateNotifications,
    /// The broker has no budget for everybody together.
    NoBudget,
    /// At the broker everybody may publish anywhere and hear everything.
    NoRules,
}

/// A key that nobody writes.
const ELSEWHERE: &[u8] = b"elsewhere";

impl Twin {
    pub(super) fn limit(self, limits: &mut StoreLimits) {
        match self {
            Self::NoReplyCache => limits.replies_max = 0,
            Self::NoLimits => *limits = StoreLimits::default(),
            _ => {}
        }
    }

    pub(super) const fn flaw(self) -> Option<Flaw> {
        match self {
            Self::EarlyRelease => Some(Flaw::ReleasesEarly),
            Self::NeverAsks => Some(Flaw::NeverAsks),
            Self::NoArrival => Some(Flaw::ForgetsArrival),
            Self::ForgetsAnswers => Some(Flaw::ForgetsAnswers),
            Self::ForgetsWatches => Some(Flaw::ForgetsWatches),
            Self::ForgetsVersions => Some(Flaw::ForgetsVersions),
            _ => None,
        }
    }

    /// What keeps messages back.
    pub(super) fn detain(self) -> Option<Detain> {
        let mut notifications = 0_u64;
        let late = Box::new(move |message: &Message| {
            notifications += u64::from(message.topic.starts_with(topic::RESERVED));
            let is_late =
                message.topic.starts_with(topic::RESERVED) && notifications.is_multiple_of(4);
            Duration::from_millis(if is_late { 150 } else { 0 })
        });
        (self == Self::LateNotifications).then_some(late as Detain)
    }

    pub(super) fn tamper(self) -> Option<Tamper> {
        match self {
            Self::OpenFence => Some(open_fence()),
            Self::NoReregistration => Some(no_reregistration()),
            Self::StaleReads => Some(stale_reads()),
            Self::ClockGoesBack => Some(clock_goes_back()),
            Self::NoIncarnation => Some(Box::new(|message| {
                message.user_properties.retain(|(name, _)| *name != property::INCARNATION);
            })),
            _ => None,
        }
    }
}

fn open_fence() -> Tamper {
    let mut greatest: Option<Hlc> = None;
    Box::new(move |message| {
        let tokens =
            message.user_properties.iter_mut().filter(|(name, _)| *name == property::FENCING_TOKEN);
        for (_, text) in tokens {
            let token = HlcRef::parse(text).ok().map(Hlc::from);
            greatest = greatest.take().max(token);
            if let Some(greatest) = &greatest {
                *text = greatest.to_string();
            }
        }
    })
}

fn no_reregistration() -> Tamper {
    let mut first: BTreeMap<(Arc<str>, Vec<u8>), Vec<u8>> = BTreeMap::new();
    Box::new(move |message| {
        if let Ok(Command::Watch { key }) = Command::decode(&message.payload) {
            // The copy of a doubled request is the same request.
            let name = correlation(message);
            let known = first.entry((Arc::clone(&message.sender), key.to_vec()));
            if known.or_insert_with(|| name.clone()) != &name {
                message.payload = Command::Watch { key: ELSEWHERE }.encode().into();
            }
        }
    })
}

/// From some write on, every version that the store tells is five minutes less.
fn clock_goes_back() -> Tamper {
    let mut told = 0;
    Box::new(move |message| {
        let stamps =
            message.user_properties.iter_mut().filter(|(name, _)| *name == property::TIMESTAMP);
        for (_, text) in stamps.filter(|_| *message.topic != *topic::REQUEST) {
            told += 1;
            if let Ok(version) = HlcRef::parse(text)
                && told > 40
            {
                let wall = UnixTime::from_millis(version.wall().as_millis() - 300_000);
                *text = HlcRef::new(wall, version.counter(), *version.node()).to_string();
            }
        }
    })
}

/// Payload and user properties.
type Answer = (Bytes, Vec<(Cow<'static, str>, String)>);

fn stale_reads() -> Tamper {
    let mut asked: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut answers: BTreeMap<Vec<u8>, Answer> = BTreeMap::new();
    Box::new(move |message| {
        let name = correlation(message);
        if *message.topic == *topic::REQUEST {
            if let Ok(Command::Get { key }) = Command::decode(&message.payload) {
                asked.insert(name, key.to_vec());
            }
        } else if let Some(key) = asked.remove(&name) {
            let answer = (message.payload.clone(), message.user_properties.clone());
            match answers.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(answer);
                }
                Entry::Occupied(mut entry) => {
                    (message.payload, message.user_properties) = entry.insert(answer);
                }
            }
        }
    })
}

fn correlation(message: &Message) -> Vec<u8> {
    message.correlation_data.as_ref().map(Correlation::as_bytes).unwrap_or_default().to_vec()
}
