//! What a change of the tables causes.

use super::registrations::Registration;
use super::{ClockAdvance, Record, StoreConfig};
use crate::hlc::Hlc;
use crate::message::Notification;

/// The effects of one change: first its record, then its notifications.
#[derive(Default)]
pub(super) struct Effects<'a> {
    /// The key that they are about.
    pub(super) key: &'a [u8],
    pub(super) recording: Option<Recording>,
    /// For the clients that are registered for the key.
    pub(super) notification: Option<Notification<&'a [u8]>>,
    /// The version of the change.
    pub(super) version: Option<Hlc>,
    pub(super) clock_advance: Option<ClockAdvance>,
}

/// What must be durable before the packets about a key are sent.
pub(super) enum Recording {
    Record(Record),
    /// The reservation of versions for writes without a record, of which this is the first.
    Reservation(Record),
    /// The last reservation: this write has no record.
    LastReservation,
}

impl<'a> Effects<'a> {
    pub(super) fn about(key: &'a [u8]) -> Self {
        Self { key, ..Self::default() }
    }

    /// The registration for a key has ended.
    pub(super) fn of_end(config: &StoreConfig, key: &'a [u8], ended: &Registration) -> Self {
        let record = || Recording::Record(ended.to_end_record());
        let recording = config.records_registrations().then(record);
        Self { recording, ..Self::about(key) }
    }
}
