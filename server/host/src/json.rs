//! Errors of JSON files without the values, which may be secret.

use serde_json::Error;
use serde_json::error::Category;
use statestore_tokio::diagnostics::text::without_value;

/// Returns the cause of an error, without any value of the text.
pub(crate) fn cause(error: &Error) -> String {
    match error.classify() {
        Category::Eof => "the JSON text ends early".to_owned(),
        Category::Data => {
            let text = error.to_string();
            let text = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
            without_value(text).into()
        }
        _ => format!("invalid JSON at column {}", error.column()),
    }
}
