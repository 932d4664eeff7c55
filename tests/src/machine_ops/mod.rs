//! Operations on the machines, read from bytes, and the fuzz bodies that run them against their oracles.
//!
//! An operation is a tag byte and five argument bytes. Tags are letters of their own, and a byte that is no tag is
//! skipped, so an input keeps its meaning when operations are added.

mod client;
mod seeds;
mod server;
mod store;
mod watch_log;
mod world;

pub use client::{CLIENT_TAGS, ClientRig, client_events};
pub use seeds::{Seed, client_seeds, store_seeds, world_seeds};
pub use server::Server;
pub use store::{STORE_TAGS, StoreOp, StoreScript, store_ops};
pub use watch_log::WatchLog;
pub use world::{WORLD_TAGS, world};

use proptest::prelude::{Strategy, any, prop};

/// Argument bytes of an operation.
pub type Args = [u8; 5];

/// Reads operations.
pub(crate) struct Reader<'a> {
    data: &'a [u8],
    tags: &'static [u8],
}

impl<'a> Reader<'a> {
    /// The head bytes, missing ones as zero, and the operations after them.
    pub(crate) fn new<const HEAD: usize>(
        data: &'a [u8],
        tags: &'static [u8],
    ) -> ([u8; HEAD], Self) {
        let (head, data) = data.split_at(HEAD.min(data.len()));
        let mut padded = [0; HEAD];
        padded[..head.len()].copy_from_slice(head);
        (padded, Self { data, tags })
    }

    /// Bytes that follow an operation as they are.
    pub(crate) fn raw(&mut self, len: usize) -> &'a [u8] {
        let (raw, rest) = self.data.split_at(len.min(self.data.len()));
        self.data = rest;
        raw
    }
}

impl Iterator for Reader<'_> {
    type Item = (u8, Args);

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.data.iter().position(|byte| self.tags.contains(byte))?;
        let tag = self.data[at];
        self.data = &self.data[at + 1..];
        let mut args = Args::default();
        let given = self.raw(args.len());
        args[..given.len()].copy_from_slice(given);
        Some((tag, args))
    }
}

/// Inputs with head bytes and up to `ops` operations of these tags. A tag that is given more often comes more often.
pub fn script(
    head: impl Strategy<Value = Vec<u8>>,
    tags: &'static [u8],
    ops: usize,
) -> impl Strategy<Value = Vec<u8>> {
    let op = (prop::sample::select(tags), any::<Args>());
    (head, prop::collection::vec(op, 0..ops)).prop_map(|(mut bytes, ops)| {
        for (tag, args) in ops {
            bytes.push(tag);
            bytes.extend(args);
        }
        bytes
    })
}
