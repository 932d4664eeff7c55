//! Broken worlds: a checker must catch its broken variant to prove anything.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use crate::{DriverBug, Interceptor, Message, MessageDelay};
use bytes::Bytes;
use statestore_proto::hlc::{Hlc, HlcRef};
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, property};
use statestore_proto::time::UnixTime;
use statestore_proto::topic;
use statestore_proto::transport::Correlation;

/// A deliberate fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Twin {
    /// Nothing.
    #[default]
    Sound,
    /// Every token becomes the greatest one so far, as if the fence accepted all.
    OpenFence,
    /// The store does not deduplicate.
    NoDeduplication,
    /// A client's later KEYNOTIFY for a key goes to an unused key, as if it never registered again.
    NoReregistration,
    /// A read returns the previous reply for the same key.
    StaleReads,
    /// The store sends replies before their records are durable.
    EarlyReplies,
    /// The store enforces no limits.
    NoLimits,
    /// Requests are submitted although the store cannot receive them.
    NoBackPressure,
    /// The store's clock steps back once, and its versions decrease.
    ClockGoesBack,
    /// Times of arrival are missing, so that requests are executed after their client gave up.
    NoArrivalTimes,
    /// A successor claims the persisted state but starts empty.
    EmptySuccessor,
    /// The journal loses responses.
    LostResponses,
    /// The journal loses registrations, and incarnations are removed.
    LostRegistrations,
    /// The journal loses versions except those of existing values.
    LostVersions,
    /// No store reports its incarnation.
    NoIncarnation,
    /// Some notifications are delayed behind later messages.
    LateNotifications,
    /// The broker ignores its total memory budget.
    NoBudget,
    /// The broker lets every client publish and subscribe anywhere.
    NoRules,
}

/// A key that is never written.
const ELSEWHERE: &[u8] = b"elsewhere";

impl Twin {
    pub(super) fn limit(self, limits: &mut StoreLimits) {
        match self {
            Self::NoDeduplication => limits.dedup_entries_max = 0,
            Self::NoLimits => *limits = StoreLimits::default(),
            _ => {}
        }
    }

    pub(super) const fn bug(self) -> Option<DriverBug> {
        match self {
            Self::EarlyReplies => Some(DriverBug::RepliesBeforeDurable),
            Self::NoBackPressure => Some(DriverBug::IgnoresBackPressure),
            Self::NoArrivalTimes => Some(DriverBug::LosesArrivalTimes),
            Self::LostResponses => Some(DriverBug::LosesResponses),
            Self::LostRegistrations => Some(DriverBug::LosesRegistrations),
            Self::LostVersions => Some(DriverBug::LosesVersions),
            _ => None,
        }
    }

    /// The delay of messages.
    pub(super) fn message_delay(self) -> Option<MessageDelay> {
        let mut notifications = 0_u64;
        let late = Box::new(move |message: &Message| {
            notifications += u64::from(message.topic.starts_with(topic::RESERVED));
            let is_late =
                message.topic.starts_with(topic::RESERVED) && notifications.is_multiple_of(4);
            Duration::from_millis(if is_late { 150 } else { 0 })
        });
        (self == Self::LateNotifications).then_some(late as MessageDelay)
    }

    pub(super) fn interceptor(self) -> Option<Interceptor> {
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

fn open_fence() -> Interceptor {
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

fn no_reregistration() -> Interceptor {
    let mut first: BTreeMap<(Arc<str>, Vec<u8>), Vec<u8>> = BTreeMap::new();
    Box::new(move |message| {
        if let Ok(Command::Watch { key }) = Command::decode(&message.payload) {
            // A duplicate of a request is the same request.
            let name = correlation(message);
            let known = first.entry((Arc::clone(&message.sender), key.to_vec()));
            if known.or_insert_with(|| name.clone()) != &name {
                message.payload = Command::Watch { key: ELSEWHERE }.encode().into();
            }
        }
    })
}

/// From the 41st version on, every version in the store's output is five minutes lower.
fn clock_goes_back() -> Interceptor {
    let mut seen = 0;
    Box::new(move |message| {
        let stamps =
            message.user_properties.iter_mut().filter(|(name, _)| *name == property::TIMESTAMP);
        for (_, text) in stamps.filter(|_| *message.topic != *topic::REQUEST) {
            seen += 1;
            if let Ok(version) = HlcRef::parse(text)
                && seen > 40
            {
                let wall = UnixTime::from_millis(version.wall().as_millis() - 300_000);
                *text = HlcRef::new(wall, version.counter(), *version.node()).to_string();
            }
        }
    })
}

/// Payload and user properties of a reply.
type Answer = (Bytes, Vec<(Cow<'static, str>, String)>);

fn stale_reads() -> Interceptor {
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
