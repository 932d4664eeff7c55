//! The configuration of a store as a part of the first frame.

use alloc::vec::Vec;

use statestore_proto::hlc::NodeId;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Dialect, Incarnation, WordCase};
use statestore_proto::store::{DialectPolicy, Durability, StoreConfig};

use crate::CaptureError;
use crate::codec::{Reader, bytes, duration, number, option};
use crate::inputs::{position, read_position};

/// Limits of the packets that wait in a replayed store: an untrusted capture contains the limits of
/// its replay.
const OUTGOING_MAX: usize = 1 << 20;
const OUTGOING_BYTES_MAX: usize = 1 << 30;

const DIALECTS: [DialectPolicy; 3] = [
    DialectPolicy::Auto,
    DialectPolicy::Pinned(Dialect::Deployed),
    DialectPolicy::Pinned(Dialect::Spec),
];

const DURABILITIES: [Durability; 3] = [Durability::None, Durability::Requested, Durability::All];

/// The facts about a capture that a replay needs besides the settings of the store.
#[derive(Clone, Copy)]
pub(crate) struct Flags {
    pub(crate) has_authorizer: bool,
    pub(crate) has_durable_keys: bool,
    pub(crate) has_expiry_policy: bool,
    pub(crate) is_redacted: bool,
}

/// All limits that are a `usize`, in the order of their encoding.
const fn numbers(limits: &mut StoreLimits) -> [&mut usize; 14] {
    let StoreLimits {
        keys_max,
        bytes_max,
        key_bytes_max,
        value_bytes_max,
        registrations_max,
        registration_bytes_max,
        registrations_per_key_max,
        unverified_registrations_kept: _,
        client_percent: _,
        outgoing_max,
        outgoing_bytes_max,
        record_bytes_max,
        dedup_entries_max,
        dedup_bytes_max,
        page_bytes_max,
        page_work_max,
    } = limits;
    [
        keys_max,
        bytes_max,
        key_bytes_max,
        value_bytes_max,
        registrations_max,
        registration_bytes_max,
        registrations_per_key_max,
        outgoing_max,
        outgoing_bytes_max,
        dedup_entries_max,
        dedup_bytes_max,
        page_bytes_max,
        page_work_max,
        record_bytes_max,
    ]
}

pub(crate) fn write(out: &mut Vec<u8>, config: &StoreConfig, flags: Flags) {
    bytes(out, config.node_id.as_str().as_bytes());
    let mut limits = config.limits;
    for limit in numbers(&mut limits) {
        number(out, *limit as u64);
    }
    out.push(limits.client_percent);
    duration(out, limits.unverified_registrations_kept);
    duration(out, config.clock_drift_max);
    position(out, &DIALECTS, &config.dialect);
    position(out, &DURABILITIES, &config.durability);
    for flag in [
        config.word_case == WordCase::Upper,
        config.durable_registrations,
        config.linearizable_reads,
        config.explain,
        flags.has_authorizer,
        flags.has_durable_keys,
        flags.has_expiry_policy,
        flags.is_redacted,
    ] {
        out.push(u8::from(flag));
    }
    option(out, config.incarnation.map(Incarnation::number), number);
    out.extend_from_slice(&config.effective_scan_secret());
}

pub(crate) fn read(reader: &mut Reader<'_>) -> Result<(StoreConfig, Flags), CaptureError> {
    let (config, flags) = read_all(reader).ok_or(CaptureError::Unreadable)?;
    let limits = config.limits;
    // A store raises `outgoing_max` to three fan-outs of one key.
    let fan_outs = limits.registrations_per_key_max.saturating_mul(3);
    if limits.outgoing_max.max(fan_outs) > OUTGOING_MAX
        || limits.outgoing_bytes_max > OUTGOING_BYTES_MAX
    {
        return Err(CaptureError::TooLarge);
    }
    Ok((config, flags))
}

fn read_all(reader: &mut Reader<'_>) -> Option<(StoreConfig, Flags)> {
    let node_id = NodeId::new(reader.text()?).ok()?;
    let mut limits = StoreLimits::default();
    for limit in numbers(&mut limits) {
        *limit = usize::try_from(reader.number()?).unwrap_or(usize::MAX);
    }
    limits.client_percent = reader.byte()?;
    limits.unverified_registrations_kept = reader.duration()?;
    let mut config = StoreConfig::new(0)
        .node_id(node_id)
        .limits(limits)
        .clock_drift_max(reader.duration()?)
        .ok()?
        .dialect(read_position(reader, &DIALECTS)?)
        .durability(read_position(reader, &DURABILITIES)?)
        .word_case(if reader.bool()? { WordCase::Upper } else { WordCase::Any })
        .durable_registrations(reader.bool()?)
        .linearizable_reads(reader.bool()?)
        .explain(reader.bool()?);
    let flags = Flags {
        has_authorizer: reader.bool()?,
        has_durable_keys: reader.bool()?,
        has_expiry_policy: reader.bool()?,
        is_redacted: reader.bool()?,
    };
    if let Some(number) = reader.option(Reader::number)? {
        config = config.incarnation(number);
    }
    Some((config.scan_secret(*reader.chunk()?), flags))
}
