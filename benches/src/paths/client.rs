//! A GET through the machine of a client.

use std::hint::black_box;

use super::{Path, REPETITIONS};
use crate::stage::ClientStage;

/// Requests and responses before the count, so that no table has its initial size.
const WARM_UP: usize = 16;

/// Request and response alone, and both with one and with many requests in flight.
#[must_use]
pub fn client() -> Vec<Path> {
    let mut paths = vec![
        // From `submit` to the publish. Each call adds a request in flight.
        Path::new("client/request", || {
            let mut stage = warm();
            move || _ = black_box(stage.request())
        })
        .counted()
        .untimed(),
        // From the message to the completion, with all other requests in flight.
        Path::new("client/response", || {
            let mut stage = warm();
            let mut sent: Vec<_> = (0..REPETITIONS).map(|_| stage.request()).collect();
            sent.reverse();
            move || {
                let correlation = sent.pop().expect("one request for each repetition");
                assert!(stage.respond(black_box(&correlation)), "the request is completed");
            }
        })
        .counted()
        .untimed(),
    ];
    for in_flight in [1, 256] {
        let prepare = move || {
            let mut stage = warm();
            assert_eq!(stage.run(in_flight), in_flight, "each request has a response");
            move || _ = black_box(stage.run(in_flight))
        };
        let name = format!("client/submit-to-completion/{in_flight}-in-flight");
        paths.push(Path::new(name, prepare).messages(in_flight));
    }
    paths
}

fn warm() -> ClientStage {
    let mut stage = ClientStage::new();
    assert_eq!(stage.run(WARM_UP), WARM_UP, "each request has a response");
    stage
}
