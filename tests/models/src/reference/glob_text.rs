//! Keys and patterns as text, for an oracle that only accepts text.

/// Returns bytes as text for the crate `glob`, which does not accept others: a byte that is not
/// UTF-8 becomes a character of its own, one of the last 256.
#[must_use]
pub fn text_for_glob(bytes: &[u8]) -> String {
    let stand_in = |byte: &u8| char::from_u32(0x10_ff00 + u32::from(*byte));
    let chunks = bytes.utf8_chunks();
    chunks
        .flat_map(|chunk| chunk.valid().chars().chain(chunk.invalid().iter().filter_map(stand_in)))
        .collect()
}
