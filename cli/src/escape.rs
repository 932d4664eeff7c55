//! Names and values of others as text for a terminal.

pub(crate) use statestore_tokio::diagnostics::text::{
    on_one_line, one_line, path_on_one_line, printable,
};
