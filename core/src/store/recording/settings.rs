//! The configuration of a store in a recording.

use alloc::vec::Vec;
use core::time::Duration;

use super::RecordingError;
use crate::hlc::NodeId;
use crate::limits::StoreLimits;
use crate::message::{Dialect, Incarnation, WordCase};
use crate::store::codec::{Reader, bytes, number};
use crate::store::{DialectPolicy, Durability, StoreConfig};
use crate::time::whole_millis;

const DURABLE_WATCHES: u8 = 1;
const LINEARIZABLE_READS: u8 = 1 << 1;
const EXPLAIN: u8 = 1 << 2;
const UPPER_CASE: u8 = 1 << 3;
const DURABLE_KEYS: u8 = 1 << 4;
const AUTHORIZER: u8 = 1 << 5;
const REDACTED: u8 = 1 << 6;

/// What a replay has room for: a recording may come from anybody, and its limits are those of the replay.
const OUTGOING_MAX: usize = 1 << 20;
const OUTGOING_BYTES_MAX: usize = 1 << 30;

/// A configuration that was read.
pub(super) struct Settings {
    pub(super) config: StoreConfig,
    pub(super) has_selector: bool,
    pub(super) has_authorizer: bool,
    pub(super) is_redacted: bool,
}

/// The numbers of all limits, in the order in which they are written.
const fn numbers(limits: &StoreLimits) -> [usize; 14] {
    [
        limits.keys_max,
        limits.bytes_max,
        limits.key_bytes_max,
        limits.value_bytes_max,
        limits.watches_max,
        limits.watch_bytes_max,
        limits.watches_per_key_max,
        limits.client_percent as usize,
        limits.outgoing_max,
        limits.outgoing_bytes_max,
        limits.replies_max,
        limits.reply_bytes_max,
        limits.page_bytes_max,
        limits.page_work_max,
    ]
}

pub(super) fn write(out: &mut Vec<u8>, config: &StoreConfig, is_redacted: bool) {
    bytes(out, config.node_id.as_str().as_bytes());
    for limit in numbers(&config.limits) {
        number(out, limit as u64);
    }
    number(out, whole_millis(config.limits.claimed_watches_kept));
    number(out, whole_millis(config.clock_drift_max));
    out.push(match config.dialect {
        DialectPolicy::Auto => 0,
        DialectPolicy::Pinned(Dialect::Deployed) => 1,
        DialectPolicy::Pinned(Dialect::Page) => 2,
    });
    out.push(match config.durability {
        Durability::None => 0,
        Durability::Requested => 1,
        Durability::All => 2,
    });
    let flags = [
        (config.durable_watches, DURABLE_WATCHES),
        (config.linearizable_reads, LINEARIZABLE_READS),
        (config.explain, EXPLAIN),
        (config.word_case == WordCase::Upper, UPPER_CASE),
        (config.durable_keys.is_some(), DURABLE_KEYS),
        (config.authorizer.is_some(), AUTHORIZER),
        (is_redacted, REDACTED),
    ];
    out.push(flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag));
    number(out, u64::from(config.incarnation.is_some()));
    number(out, config.incarnation.map_or(0, Incarnation::number));
    out.extend_from_slice(&config.effective_scan_secret());
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Settings, RecordingError> {
    let settings = read_all(reader).ok_or(RecordingError::Unreadable)?;
    let limits = &settings.config.limits;
    if limits.outgoing_max.max(limits.burst()) > OUTGOING_MAX
        || limits.outgoing_bytes_max > OUTGOING_BYTES_MAX
    {
        return Err(RecordingError::TooLarge);
    }
    Ok(settings)
}

fn read_all(reader: &mut Reader<'_>) -> Option<Settings> {
    let node_id = NodeId::new(reader.text()?).ok()?;
    let mut read = [0; 14];
    for number in &mut read {
        *number = usize::try_from(reader.number()?).unwrap_or(usize::MAX);
    }
    let [
        keys_max,
        bytes_max,
        key_bytes_max,
        value_bytes_max,
        watches_max,
        watch_bytes_max,
        watches_per_key_max,
        client_percent,
        outgoing_max,
        outgoing_bytes_max,
        replies_max,
        reply_bytes_max,
        page_bytes_max,
        page_work_max,
    ] = read;
    let limits = StoreLimits {
        keys_max,
        bytes_max,
        key_bytes_max,
        value_bytes_max,
        watches_max,
        watch_bytes_max,
        watches_per_key_max,
        claimed_watches_kept: Duration::from_millis(reader.number()?),
        client_percent: u8::try_from(client_percent).ok()?,
        outgoing_max,
        outgoing_bytes_max,
        replies_max,
        reply_bytes_max,
        page_bytes_max,
        page_work_max,
    };
    let drift = Duration::from_millis(reader.number()?);
    let dialect = match reader.byte()? {
        0 => DialectPolicy::Auto,
        1 => DialectPolicy::Pinned(Dialect::Deployed),
        2 => DialectPolicy::Pinned(Dialect::Page),
        _ => return None,
    };
    let durability = match reader.byte()? {
        0 => Durability::None,
        1 => Durability::Requested,
        2 => Durability::All,
        _ => return None,
    };
    let flags = reader.flags(u8::MAX >> 1)?;
    let has = |flag| flags & flag != 0;
    let incarnation = (reader.number()?, reader.number()?);
    let config = StoreConfig::new(0)
        .node_id(node_id)
        .limits(limits)
        .clock_drift_max(drift)
        .explain(has(EXPLAIN))
        .dialect(dialect)
        .word_case(if has(UPPER_CASE) { WordCase::Upper } else { WordCase::Any })
        .durability(durability)
        .durable_watches(has(DURABLE_WATCHES))
        .linearizable_reads(has(LINEARIZABLE_READS))
        .scan_secret(*reader.chunk()?);
    let config = if incarnation.0 == 0 { config } else { config.incarnation(incarnation.1) };
    Some(Settings {
        config,
        has_selector: has(DURABLE_KEYS),
        has_authorizer: has(AUTHORIZER),
        is_redacted: has(REDACTED),
    })
}
