//! Texts that repeat in one list of records: client ids, response topics and node ids.

/// Number of slots: as many as a reference of one byte can have.
const SLOTS: usize = 64;

/// Longest text that a slot stores, in bytes. Decoding a reference of one byte allocates no more.
const TEXT_BYTES_MAX: usize = 255;

/// The latest text of each slot.
///
/// The slot of a text is a hash of the text, so both directions take constant time for each text.
/// Two texts with one slot replace each other, and then each of them is written again in full.
pub(super) struct Texts<'a> {
    slots: [Option<&'a str>; SLOTS],
}

impl<'a> Texts<'a> {
    pub(super) const fn new() -> Self {
        Self { slots: [None; SLOTS] }
    }

    /// Stores a text in its slot, unless it is too long. Returns the number of the slot if it
    /// already contained the text.
    pub(super) fn insert(&mut self, text: &'a str) -> Option<usize> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let number = slot_of(text);
        let slot = self.slots.get_mut(number)?;
        (slot.replace(text) == Some(text)).then_some(number)
    }

    /// Returns the text in a slot.
    pub(super) fn get(&self, slot: u64) -> Option<&'a str> {
        *self.slots.get(usize::try_from(slot).ok()?)?
    }
}

/// A client can choose texts that share a slot. That only costs the bytes of those texts.
fn slot_of(text: &str) -> usize {
    // An odd number close to 2^64 divided by the golden ratio, which spreads the bits.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = text.as_bytes().chunks(size_of::<u64>()).fold(text.len() as u64, |hash, chunk| {
        let mut word = [0; size_of::<u64>()];
        word.iter_mut().zip(chunk).for_each(|(to, byte)| *to = *byte);
        let mixed = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
        mixed ^ (mixed >> 32)
    });
    let [low, ..] = hash.to_le_bytes();
    usize::from(low) % SLOTS
}
