//! The request pipeline of the store.
//!
//! The stages are those of [`rules`](crate::rules), in the same order. A stage that can refuse the
//! request returns `Result<_, Refused>`:
//!
//! ```text
//! Incoming ─▶ address ─▶ parse ─▶ authorize ─▶ deduplicate ─▶ timestamps ─▶ decide ─▶ apply ─▶ respond
//! ```
//!
//! `process` runs the stages. Parsing is in this file; `execute.rs` contains timestamps and
//! decision, and each other stage has its own file. `scan.rs` replaces the stages after parsing for
//! SCAN. GET and SCAN skip deduplication; for other commands, `deduplicate` calls `authorize` and
//! `execute`.

mod address;
mod apply;
mod authorize;
mod deduplicate;
mod execute;
mod respond;
mod scan;

use address::Address;

use super::dedup::Response;
use super::outbox::DependsOn;
use super::{ClockAdvance, DropReason, Handled, Principal, Refused, RequestOutcome, Store};
use crate::message::{Command, Request, RequestKind};
use crate::rules::{Exceeded, Limit};
use crate::time::Now;
use crate::transport::{Incoming, Transmit};

/// The result of a request that gets a response.
struct Executed {
    response: Response,
    outcome: RequestOutcome,
    clock_advance: Option<ClockAdvance>,
}

impl Executed {
    const fn new(response: Response, outcome: RequestOutcome) -> Self {
        Self { response, outcome, clock_advance: None }
    }
}

impl Store {
    /// Handles a message. The output queue must have capacity for all packets that it can cause.
    pub(super) fn process<'a>(&mut self, now: Now, incoming: &Incoming<'a>) -> Handled<'a> {
        let sender = Principal::of(incoming);
        let address = match Address::new(&self.config, now, incoming, self.handed_over) {
            Ok(address) => address,
            Err(reason) => {
                self.disconnect_offender(sender, incoming, reason);
                return self.handled(None, RequestOutcome::Dropped(reason));
            }
        };
        let request = match self.parse(incoming) {
            Ok(request) => request,
            Err(refused) => {
                let depends_on = match &refused {
                    Refused::Malformed(_) => DependsOn::Everything,
                    _ => DependsOn::Nothing,
                };
                let executed = address.refuse(refused);
                self.respond(depends_on, &address, executed.response, &executed.outcome);
                return self.handled(None, executed.outcome);
            }
        };
        let (depends_on, executed) = match &request {
            // A page depends on any number of keys.
            Request::Scan(scan) => {
                let page = self.scan(now, sender, incoming, &address, scan);
                (DependsOn::Everything, page.map(|payload| address.page(payload)))
            }
            Request::Command(command) if command.kind() == RequestKind::Get => (
                DependsOn::Key(command.key()),
                self.execute_get(now, sender, incoming, &address, command),
            ),
            Request::Command(command) => {
                let executed = self.deduplicate(now, sender, incoming, &address, command);
                (DependsOn::Key(command.key()), Ok(executed))
            }
        };
        let executed = executed.unwrap_or_else(|refused| address.refuse(refused));
        self.respond(depends_on, &address, executed.response, &executed.outcome);
        let handled = self.handled(Some(request), executed.outcome);
        Handled { clock_advance: executed.clock_advance, ..handled }
    }

    pub(super) const fn handled<'a>(
        &self,
        request: Option<Request<&'a [u8]>>,
        outcome: RequestOutcome,
    ) -> Handled<'a> {
        Handled { request, outcome, clock_advance: None, number: self.handed_over }
    }

    /// Orders the broker to disconnect a client for a forbidden response topic, if its client id is
    /// verified. An unverified client id may be the id of a victim.
    fn disconnect_offender(
        &mut self,
        sender: Principal<'_>,
        incoming: &Incoming<'_>,
        reason: DropReason,
    ) {
        let DropReason::ForbiddenResponseTopic(offence) = reason else { return };
        let client_id = sender.client_id().filter(|_| sender.is_verified());
        if let Some((client_id, response_topic)) = client_id.zip(incoming.response_topic) {
            let (client_id, response_topic) = (client_id.into(), response_topic.into());
            let disconnect = Transmit::Disconnect { client_id, response_topic, offence };
            self.outbox.push(DependsOn::Nothing, disconnect);
        }
    }

    /// Decodes a request that can get a response.
    fn parse<'a>(&self, incoming: &Incoming<'a>) -> Result<Request<&'a [u8]>, Refused> {
        address::check_delivery(incoming)?;
        let payload: &'a [u8] = incoming.payload;
        Ok(Request::decode_with(payload, self.config.word_case)?)
    }

    /// Executes a GET, which only reads and needs no deduplication.
    fn execute_get(
        &mut self,
        now: Now,
        sender: Principal<'_>,
        incoming: &Incoming<'_>,
        address: &Address,
        command: &Command<&[u8]>,
    ) -> Result<Executed, Refused> {
        self.authorize(sender, incoming, command)?;
        let executed = self.execute(now, sender, incoming, address, command, 0)?;
        // Our choice: the protocol defines no error for a value that the requester cannot receive.
        let Response { payload, version } = &executed.response;
        let max = address.payload_max(version.as_ref());
        Exceeded::check(Limit::PacketBytes, payload.len(), max)?;
        Ok(executed)
    }
}
