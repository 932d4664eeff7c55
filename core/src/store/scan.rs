//! SCAN: the keys that match a pattern, in their order, a page at a time.
//!
//! A page ends where it is full or where enough work was done, and its token says where the next one begins. Nothing is
//! kept between them, so a requester can abandon any number of listings.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use super::counters::{Handled, Verdict};
use super::explain::{Exceeded, Explanation, Limit};
use super::replies::Answer;
use super::{Access, Principal, Store};
use crate::glob::{Pattern, Progress};
use crate::message::{CommandKind, Dialect, PageParts, PeerError, PeerErrorKind, Scan, listed_len};
use crate::mqtt::Incoming;
use crate::time::Now;

/// What it costs to come to a key, or to ask whether it may be read, in the measure of
/// [`page_work_max`](crate::limits::StoreLimits::page_work_max).
const KEY_WORK: usize = 64;

/// The first key that is not listed yet, or where it would be, and how far its match has got.
#[derive(Clone, Copy, Default)]
struct Position<'a> {
    key: &'a [u8],
    progress: Progress,
}

impl<'a> Position<'a> {
    /// Reads the [`numbers`](Self::numbers) and the key behind them.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (pattern, rest) = bytes.split_first_chunk()?;
        let (key_at, key) = rest.split_first_chunk()?;
        let number = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes) as usize;
        Some(Self { key, progress: Progress { pattern: number(pattern), key: number(key_at) } })
    }

    /// The numbers; the key follows.
    fn numbers(&self) -> [u8; 8] {
        let number = |number: usize| u32::try_from(number).unwrap_or_default().to_le_bytes();
        let mut out = [0; 8];
        let (pattern, key) = out.split_at_mut(4);
        pattern.copy_from_slice(&number(self.progress.pattern));
        key.copy_from_slice(&number(self.progress.key));
        out
    }
}

impl Store {
    /// The answer to what is no [`Command`](crate::message::Command), as `error` says, and what came of it.
    pub(super) fn answer_other(
        &mut self,
        now: Now,
        from: Principal<'_>,
        incoming: &Incoming<'_>,
        dialect: Dialect,
        error: PeerError,
    ) -> (Answer, Handled) {
        let scan = match error.kind {
            PeerErrorKind::UnknownCommand => Scan::decode(incoming.payload, self.config.word_case),
            _ => Err(error),
        };
        let (verb, page) = match scan {
            Ok(scan) => (Some(CommandKind::Scan), self.scan(now, from, incoming, &scan)),
            Err(error) => (None, Err(Explanation::Unreadable(error))),
        };
        match page {
            Ok(page) => {
                let answer = Answer { payload: page.into(), timestamp: None };
                (answer, Handled::of(verb, Verdict::Applied))
            }
            Err(why) => {
                let (answer, verdict) = self.refused(why, dialect);
                (answer, Handled::of(verb, verdict))
            }
        }
    }

    /// The payload that answers it.
    fn scan(
        &self,
        now: Now,
        from: Principal<'_>,
        incoming: &Incoming<'_>,
        scan: &Scan<&[u8]>,
    ) -> Result<Vec<u8>, Explanation> {
        if from.is_contradicted_by(incoming) {
            return Err(Explanation::OtherSource);
        }
        let key_bytes_max = self.config.limits.key_bytes_max;
        if let Some(long) = Exceeded::of(Limit::KeyBytes, scan.pattern.len(), key_bytes_max) {
            return Err(Explanation::Limit(long));
        }
        let pattern = Pattern::new(scan.pattern).map_err(|_| Explanation::Pattern)?;
        let opened = scan.token.map(|token| self.seal.open(scan.pattern, token));
        let opened = opened.map(|opened| opened.ok_or(Explanation::ScanToken)).transpose()?;
        let start =
            opened.as_deref().map(|opened| Position::read(opened).ok_or(Explanation::ScanToken));
        let start = start.transpose()?.unwrap_or_default();
        let max = self.payload_max(now, incoming, None);
        let room = self.config.limits.page_bytes_max.min(max);
        let (mut keys, mut next) = self.page(now, from, &pattern, start, room);
        loop {
            let token = next.map(|next| self.seal.seal(scan.pattern, &[&next.numbers(), next.key]));
            let page = PageParts { keys: &keys, token: token.as_deref() };
            let Some(exceeded) = Exceeded::of(Limit::PacketBytes, page.encoded_len(), max) else {
                return Ok(page.encode());
            };
            // There is no room for the token; the next page begins earlier then, but not where this one does.
            let last = keys.pop().filter(|last| *last != start.key);
            let key = last.ok_or(Explanation::Limit(exceeded))?;
            next = Some(Position { key, progress: Progress::default() });
        }
    }

    /// The keys of one page, and where the next one begins.
    fn page<'a>(
        &'a self,
        now: Now,
        from: Principal<'_>,
        pattern: &Pattern<'_>,
        start: Position<'_>,
        mut room: usize,
    ) -> (Vec<&'a [u8]>, Option<Position<'a>>) {
        let limits = &self.config.limits;
        let (prefix, is_literal) = (pattern.literal_prefix(), pattern.is_literal());
        // Each page gets further, whatever the limits.
        let mut work = limits.page_work_max.max(1);
        let mut keys = Vec::new();
        if pattern.matches_nothing() {
            return (keys, None);
        }
        for entry in self.table.from(start.key.max(prefix)) {
            let key = entry.key();
            if !key.starts_with(prefix) || (is_literal && key.len() > prefix.len()) {
                break;
            }
            let progress = if key == start.key { start.progress } else { Progress::default() };
            let here = Position { key, progress };
            if work == 0 {
                return (keys, Some(here));
            }
            work = work.saturating_sub(KEY_WORK + key.len() / 16);
            if entry.is_expired(now.instant) {
                continue;
            }
            match pattern.matches_within(key, progress, &mut work) {
                ControlFlow::Continue(progress) => {
                    return (keys, Some(Position { key, progress }));
                }
                ControlFlow::Break(false) => continue,
                ControlFlow::Break(true) => {}
            }
            if let Some(allows) = &self.config.authorizer {
                work = work.saturating_sub(KEY_WORK);
                if !allows(&from, Access::Read, key) {
                    continue;
                }
            }
            let len = listed_len(key);
            // A key that is longer than a page has one to itself.
            if len > room && !keys.is_empty() {
                return (keys, Some(here));
            }
            room = room.saturating_sub(len);
            keys.push(key);
        }
        (keys, None)
    }
}
