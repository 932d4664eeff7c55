//! Names and values of others as text for a terminal.

pub(crate) use statestore_tokio::diagnostics::text::{
    on_one_line, one_line, path_on_one_line, printable,
};

/// Characters of a key or a topic that a message shows. Keys have up to 32 KiB.
const PREVIEW_CHARS: usize = 200;

/// Returns the beginning of a key or a topic as text on one line.
pub(crate) fn preview(name: &[u8]) -> String {
    let mut text = one_line(name).into_owned();
    if let Some((end, _)) = text.char_indices().nth(PREVIEW_CHARS) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}
