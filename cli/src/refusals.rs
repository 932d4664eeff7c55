//! Writes that a store refuses.

use std::time::Duration;

use statestore_tokio::{Error, Refusal, ServiceError};

use crate::escape::preview;
use crate::failure::Failure;
use crate::sources::Endpoint;

/// Maximum number of attempts of a write that is refused for a reason that may pass. They take
/// about a minute, in which clocks may be corrected and keys may expire.
const ATTEMPTS_MAX: u32 = 60;

/// Pause before a request that failed is repeated.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Returns whether a write is repeated after this error. `refusals` is the number of its refusals
/// before.
pub(crate) fn may_pass(error: &Error, refusals: u32) -> bool {
    let Error::Refused { error: ServiceError::Known(refusal), .. } = error else { return false };
    // The store may accept the same write later: when clocks agree, or when it has space.
    matches!(refusal, Refusal::TimestampSkew | Refusal::FencingTokenSkew | Refusal::QuotaExceeded)
        && refusals + 1 < ATTEMPTS_MAX
}

/// The error of one key; others may succeed.
pub(crate) fn key_failure(key: &[u8], error: Error) -> Failure {
    key_failure_at(Endpoint::Broker, key, error)
}

/// The error of one key, over one connection of a command.
pub(crate) fn key_failure_at(at: Endpoint, key: &[u8], error: Error) -> Failure {
    let failure = Failure::request_at(at, error);
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
