//! A GET through the machine of a client: first the request, then the response.

use std::hint::black_box;

use crate::stage::ClientStage;

/// Requests and responses before the count, so that no table has its initial size.
const WARM_UP: usize = 16;

fn warm() -> ClientStage {
    let mut stage = ClientStage::new();
    assert_eq!(stage.run(WARM_UP), WARM_UP, "each request has a response");
    stage
}

/// From `submit` to the publish.
pub(super) fn request(_: usize) -> Box<dyn FnMut()> {
    let mut stage = warm();
    Box::new(move || _ = black_box(stage.request()))
}

/// From the message to the completion, with all other requests in flight.
pub(super) fn response(repetitions: usize) -> Box<dyn FnMut()> {
    let mut stage = warm();
    let mut sent: Vec<_> = (0..repetitions).map(|_| stage.request()).collect();
    sent.reverse();
    Box::new(move || {
        let correlation = sent.pop().expect("one request for each repetition");
        assert!(stage.respond(black_box(&correlation)), "the request is completed");
    })
}
