//! SCAN: the keys that match a pattern, in order, one page at a time.
//!
//! A page ends when it is full or when enough work was done, and its token encodes where the next
//! page begins. The store keeps no state between pages, so a requester may abandon any number of
//! scans.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use super::keyspace::Keyspace;
use super::request::{Request, is_allowed};
use super::scan_token::ScanTokens;
use super::{Access, Refused, StoreConfig};
use crate::glob::{Pattern, Progress};
use crate::message::{PageEncoder, Scan, listed_len};
use crate::rules::{Exceeded, Limit};

/// The work to visit a key, or to authorize it, in units of
/// [`page_work_max`](crate::limits::StoreLimits::page_work_max).
const KEY_WORK: usize = 64;

/// With a policy, a token is padded as if the length of its key were a multiple of this.
const PADDED: usize = 64;

/// The first key that was not decided yet (or its place, if it does not exist), and the progress of
/// its match.
#[derive(Clone, Copy, Default)]
struct Position<'a> {
    key: &'a [u8],
    progress: Progress,
}

impl<'a> Position<'a> {
    /// Decodes the [`head`](Self::encode_head) and the key after it.
    fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (pattern, rest) = bytes.split_first_chunk()?;
        let (key_at, rest) = rest.split_first_chunk()?;
        let (key_len, rest) = rest.split_first_chunk()?;
        let number = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes) as usize;
        let key = rest.get(..number(key_len))?;
        Some(Self { key, progress: Progress { pattern: number(pattern), key: number(key_at) } })
    }

    /// Encodes the progress and the length of the key. The key follows them in a token.
    fn encode_head(&self) -> [u8; 12] {
        let numbers = [self.progress.pattern, self.progress.key, self.key.len()];
        let mut head = [0; 12];
        for (part, number) in head.chunks_exact_mut(4).zip(numbers) {
            part.copy_from_slice(&u32::try_from(number).unwrap_or_default().to_le_bytes());
        }
        head
    }
}

/// What a SCAN reads.
pub(super) struct Scanner<'s> {
    pub(super) config: &'s StoreConfig,
    pub(super) keyspace: &'s Keyspace,
    pub(super) tokens: &'s ScanTokens,
}

impl<'s> Scanner<'s> {
    /// The payload of the page that a SCAN gets.
    pub(super) fn page(
        &self,
        request: &Request<'_, '_>,
        scan: &Scan<&[u8]>,
    ) -> Result<Vec<u8>, Refused> {
        let limits = &self.config.limits;
        Exceeded::check(Limit::KeyBytes, scan.pattern.len(), limits.key_bytes_max)?;
        let pattern = Pattern::new(scan.pattern).map_err(|_| Refused::InvalidPattern)?;
        let decrypted = match scan.token {
            Some(token) => self.tokens.decrypt(scan.pattern, token).map(Some),
            None => Some(None),
        };
        let decrypted = decrypted.ok_or(Refused::ForeignScanToken)?;
        let start = match &decrypted {
            Some(bytes) => Position::decode(bytes).ok_or(Refused::ForeignScanToken)?,
            None => Position::default(),
        };
        let payload_max = request.address.payload_max(None);
        let page_max = limits.page_bytes_max.min(payload_max);
        let (mut keys, mut next) = self.keys(request, &pattern, start, page_max);
        loop {
            let token = next.map(|next| {
                // The length of a token must not reveal that of a key that is not readable.
                let is_padded = self.config.authorizer.is_some();
                let padding = if is_padded { next.key.len().wrapping_neg() % PADDED } else { 0 };
                let padding = &[0; PADDED][..padding];
                self.tokens.encrypt(scan.pattern, &[&next.encode_head(), next.key, padding])
            });
            let page = PageEncoder { keys: &keys, token: token.as_deref() };
            let Err(exceeded) =
                Exceeded::check(Limit::PacketBytes, page.encoded_len(), payload_max)
            else {
                return Ok(page.encode());
            };
            // The token does not fit, so the page ends one key earlier. A page that would then end
            // where it begins makes no progress.
            let last = keys.pop().filter(|last| *last != start.key);
            let key = last.ok_or(Refused::LimitExceeded(exceeded))?;
            next = Some(Position { key, progress: Progress::default() });
        }
    }

    /// The keys of one page, and where the next page begins.
    fn keys(
        &self,
        request: &Request<'_, '_>,
        pattern: &Pattern<'_>,
        start: Position<'_>,
        mut bytes_left: usize,
    ) -> (Vec<&'s [u8]>, Option<Position<'s>>) {
        let (prefix, is_literal) = (pattern.literal_prefix(), pattern.is_literal());
        // At least one key is visited, so that each page makes progress.
        let mut work_left = self.config.limits.page_work_max.max(1);
        let mut keys = Vec::new();
        for entry in self.keyspace.range_from(start.key.max(prefix)) {
            let key = entry.key();
            if !key.starts_with(prefix) || (is_literal && key.len() > prefix.len()) {
                break;
            }
            let progress = if key == start.key { start.progress } else { Progress::default() };
            let here = Position { key, progress };
            if work_left == 0 {
                return (keys, Some(here));
            }
            work_left = work_left.saturating_sub(KEY_WORK);
            // First, so that neither the length of a page nor the number of pages depends on a key
            // that the requester may not read.
            if self.config.authorizer.is_some() {
                work_left = work_left.saturating_sub(KEY_WORK);
                if !is_allowed(self.config, request.sender, Access::Read, key) {
                    continue;
                }
            }
            if entry.is_expired(request.now.instant) {
                continue;
            }
            work_left = work_left.saturating_sub(key.len() / 16);
            match pattern.matches_within(key, progress, &mut work_left) {
                ControlFlow::Continue(progress) => {
                    return (keys, Some(Position { key, progress }));
                }
                ControlFlow::Break(false) => continue,
                ControlFlow::Break(true) => {}
            }
            let len = listed_len(key);
            // A key that is longer than a page gets its own page.
            if len > bytes_left && !keys.is_empty() {
                return (keys, Some(here));
            }
            bytes_left = bytes_left.saturating_sub(len);
            keys.push(key);
        }
        (keys, None)
    }
}
