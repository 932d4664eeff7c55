//! The response of a request, and the records of ended registrations.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Address, Executed};
use crate::message::Reply;
use crate::store::dedup::Response;
use crate::store::outbox::DependsOn;
use crate::store::registrations::Registration;
use crate::store::{Refused, RequestOutcome, Store};
use crate::transport::Transmit;

impl Store {
    /// Queues a response.
    pub(super) fn respond(
        &mut self,
        depends_on: DependsOn<'_>,
        address: &Address,
        response: Response,
        outcome: &RequestOutcome,
    ) {
        let refused = match outcome {
            RequestOutcome::Refused(refused) if self.config.explain => Some(refused),
            _ => None,
        };
        let reason = refused.map(|refused| refused.to_reason());
        let mut publish = address.publish(response, reason);
        // A response without its reason is better than none.
        let max = address.packet_bytes_max.filter(|_| refused.is_some());
        if max.is_some_and(|max| publish.packet_len_max() > max) {
            publish.remove_reason();
        }
        self.outbox.push(depends_on, Transmit::Publish(publish));
    }

    /// Records the end of registrations.
    pub(in crate::store) fn record_end(
        &mut self,
        ended: impl IntoIterator<Item = Arc<Registration>>,
    ) {
        if self.config.records_registrations() {
            for registration in ended {
                self.outbox.record(registration.key(), registration.to_end_record());
            }
        }
    }

    /// Counts and records registrations that ended without a request of their client.
    pub(in crate::store) fn record_loss(&mut self, ended: Vec<Arc<Registration>>) {
        self.counters.registrations_lost += ended.len() as u64;
        for registration in ended {
            self.record_end([registration]);
            // Their records need not be in one batch.
            self.outbox.close_unit();
        }
    }
}

impl Address {
    /// The response to a refused request.
    pub(super) fn refuse(&self, refused: Refused) -> Executed {
        let reply = Reply::<&[u8]>::Error(refused.refusal().into());
        let payload = reply.to_bytes(self.dialect);
        Executed::new(
            Response { payload, version: None },
            RequestOutcome::Refused(Box::new(refused)),
        )
    }

    /// The response to a SCAN.
    pub(super) fn page(&self, payload: Vec<u8>) -> Executed {
        let response = Response { payload: payload.into(), version: None };
        Executed::new(response, RequestOutcome::Applied)
    }
}
