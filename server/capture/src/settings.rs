//! The configuration of a store as a part of the first frame.

use alloc::vec::Vec;

use statestore_proto::hlc::NodeId;
use statestore_proto::limits::{EXPIRY_RULES_MAX, StoreLimits};
use statestore_proto::message::{Dialect, Expiry, Incarnation, WordCase};
use statestore_proto::store::{DialectPolicy, Durability, ExpiryRule, StoreConfig, StoreSettings};

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

/// The first format with expiry rules.
const EXPIRY_RULES_SINCE: u8 = 3;

/// The facts about a capture that a replay needs besides the settings of the store.
#[derive(Clone, Copy)]
pub(crate) struct Flags {
    pub(crate) has_authorizer: bool,
    pub(crate) has_durable_keys: bool,
    pub(crate) is_redacted: bool,
}

/// The first format with the limit of records.
const RECORD_BYTES_SINCE: u8 = 4;

/// All limits that are a `usize`, in the order of their encoding. The last one is encoded since
/// [`RECORD_BYTES_SINCE`].
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

pub(crate) fn write(out: &mut Vec<u8>, settings: &StoreSettings, flags: Flags) {
    bytes(out, settings.node_id.as_str().as_bytes());
    let mut limits = settings.limits;
    for limit in numbers(&mut limits) {
        number(out, *limit as u64);
    }
    out.push(limits.client_percent);
    duration(out, limits.unverified_registrations_kept);
    duration(out, settings.clock_drift_max);
    position(out, &DIALECTS, &settings.dialect);
    position(out, &DURABILITIES, &settings.durability);
    for flag in [
        settings.word_case == WordCase::Upper,
        settings.durable_registrations,
        settings.linearizable_reads,
        settings.explain,
        flags.has_authorizer,
        flags.has_durable_keys,
        flags.is_redacted,
    ] {
        out.push(u8::from(flag));
    }
    option(out, settings.incarnation.map(Incarnation::number), number);
    out.extend_from_slice(&settings.scan_secret);
    number(out, settings.expiry_rules.len() as u64);
    for rule in &settings.expiry_rules {
        bytes(out, rule.pattern());
        for expiry in [rule.default(), rule.max()] {
            option(out, expiry.map(Expiry::as_millis), number);
        }
    }
}

pub(crate) fn read(
    reader: &mut Reader<'_>,
    format: u8,
) -> Result<(StoreConfig, Flags), CaptureError> {
    let (config, flags) = read_all(reader, format).ok_or(CaptureError::Unreadable)?;
    let limits = config.settings().limits;
    // A store raises `outgoing_max` to three fan-outs of one key.
    let fan_outs = limits.registrations_per_key_max.saturating_mul(3);
    if limits.outgoing_max.max(fan_outs) > OUTGOING_MAX
        || limits.outgoing_bytes_max > OUTGOING_BYTES_MAX
    {
        return Err(CaptureError::TooLarge);
    }
    Ok((config, flags))
}

fn read_limit(reader: &mut Reader<'_>) -> Option<usize> {
    Some(usize::try_from(reader.number()?).unwrap_or(usize::MAX))
}

fn read_all(reader: &mut Reader<'_>, format: u8) -> Option<(StoreConfig, Flags)> {
    let node_id = NodeId::new(reader.text()?).ok()?;
    let mut limits = StoreLimits::default();
    let [earlier @ .., record_bytes_max] = numbers(&mut limits);
    for limit in earlier {
        *limit = read_limit(reader)?;
    }
    // Stores of earlier formats had no such limit.
    let has_record_bytes = format >= RECORD_BYTES_SINCE;
    *record_bytes_max = if has_record_bytes { read_limit(reader)? } else { usize::MAX };
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
        is_redacted: reader.bool()?,
    };
    if let Some(number) = reader.option(Reader::number)? {
        config = config.incarnation(number);
    }
    config = config.scan_secret(*reader.chunk()?);
    if format >= EXPIRY_RULES_SINCE {
        config = config.expiry_rules(read_expiry_rules(reader)?);
    }
    Some((config, flags))
}

fn read_expiry_rules(reader: &mut Reader<'_>) -> Option<Vec<ExpiryRule>> {
    let count = usize::try_from(reader.number()?).ok()?;
    if count > EXPIRY_RULES_MAX {
        return None;
    }
    let mut rules = Vec::new();
    for _ in 0..count {
        let mut rule = ExpiryRule::new(reader.bytes()?).ok()?;
        for set in [ExpiryRule::default_expiry, ExpiryRule::max_expiry] {
            let millis = reader.option(Reader::number)?;
            rule = set(rule, millis.and_then(Expiry::from_millis));
        }
        rules.push(rule);
    }
    Some(rules)
}
