//! Writes that a store refuses.

use statestore_tokio::{Error, Refusal, ServiceError};

use crate::escape::preview;
use crate::failure::Failure;

/// The error of one key; others may succeed.
pub(crate) fn key_failure(key: &[u8], error: Error) -> Failure {
    let failure = Failure::request(error);
    Failure::bad_input(format_args!("the key {}: {failure}", preview(key)))
}

/// The error of one key of an export or a dump, with advice if the key is fenced in the store.
pub(crate) fn restored_key_failure(key: &[u8], error: Error) -> Failure {
    let is_fenced = matches!(
        error,
        Error::Refused {
            error: ServiceError::Known(Refusal::FencingTokenRequired | Refusal::FencingTokenLower),
            ..
        }
    );
    let failure = key_failure(key, error);
    match is_fenced {
        true => failure.map(|text| {
            format!(
                "{text}; the key is fenced in the store, and requests cannot restore fencing \
                 tokens: use `data restore DIR`"
            )
        }),
        false => failure,
    }
}
