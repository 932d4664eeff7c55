//! Checks of the client's output as it is polled, and of its final state.

use statestore_proto::client::Event;
use statestore_proto::message::{RequestKind, RequestPayload, WordCase};
use statestore_proto::transport::{Correlation, Publish, Transmit};

use super::{ClientRig, ID, Sent};
use statestore_models::machines::request::response_topic;

impl ClientRig {
    pub(super) fn poll_event(&mut self) -> bool {
        let Some(event) = self.client.poll_event() else { return false };
        self.events.push(format!("{event:?}"));
        match event {
            Event::Completed { id, .. } => {
                assert!(self.accepted.remove(&id), "{id:?} completed twice, or was never accepted");
            }
            Event::Watch { id, event } => {
                assert!(self.watches.iter().any(|(other, _)| *other == id));
                self.log.take(id, &event, self.server.is_some());
            }
            Event::Ready => {}
            _ => assert!(self.server.is_none() || !self.events.is_empty()),
        }
        true
    }

    pub(super) fn poll_transmit(&mut self) -> bool {
        let Some(transmit) = self.client.poll_transmit() else { return false };
        assert!(self.connected, "{transmit:?} without a connection");
        self.sent.push(format!("{transmit:?}"));
        match &transmit {
            Transmit::Subscribe { filter, token } => {
                self.subscribes.push((*token, **filter != *response_topic(ID)));
            }
            Transmit::Publish(publish) => self.check_publish(publish),
            other => panic!("{other:?}"),
        }
        if let Some(server) = &mut self.server {
            server.send(0, transmit);
        }
        true
    }

    fn check_publish(&mut self, publish: &Publish) {
        let request = RequestPayload::decode_with(&publish.payload, WordCase::Upper);
        let kind = request.expect("a request").kind();
        let watches = matches!(kind, RequestKind::Watch | RequestKind::Unwatch);
        assert!(self.responses, "{kind} before the response topic is subscribed");
        assert!(self.notifications || !watches, "{kind} before notifications are subscribed");
        assert_eq!(publish.response_topic.as_deref(), Some(&*response_topic(ID)));
        assert!(publish.message_expiry.is_some_and(|seconds| seconds >= 1));
        let correlation = publish.correlation_data.as_ref().map(Correlation::as_bytes);
        let correlation = correlation.expect("always there").to_vec();
        assert!(self.requested.iter().all(|sent| sent.correlation != correlation), "sent twice");
        let token = publish.token.expect("a rejection matters");
        self.requested.push(Sent { correlation, token, kind });
    }

    pub(super) fn step_up(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| server.step_up(self.now, 0))
    }

    pub(super) fn step_down(&mut self) -> bool {
        let Some(server) = &mut self.server else { return false };
        if let Some(notifications) = server.next_suback(0).and_then(|token| {
            let (_, notifications) =
                self.subscribes.iter().find(|(subscribes, _)| *subscribes == token)?;
            Some(*notifications)
        }) {
            *(if notifications { &mut self.notifications } else { &mut self.responses }) = true;
        }
        server.step_down(self.now, 0, &mut self.client)
    }

    /// Delivers everything pending without advancing time; then the application knows the store's
    /// state.
    fn settle(&mut self) {
        if !self.connected {
            self.connect(false);
        }
        let now = self.now;
        self.server.iter_mut().for_each(|server| server.timer(now));
        for _ in 0..10_000 {
            let events = self.drain();
            if !self.step_up() && !self.step_down() && events == 0 {
                break;
            }
        }
        let Some(server) = &self.server else { return };
        for (id, key) in &self.watches {
            let state = self.log.state(*id);
            if state.ended {
                continue;
            }
            let stored = server.store().get(now, key);
            assert!(state.live, "{id:?} of {key:?} is not live at rest: {state:?}");
            assert_eq!(
                state.value.as_deref(),
                stored.map(|stored| stored.value),
                "{key:?} {state:?}"
            );
        }
    }

    /// Ends everything: each request completes once, and each watch ends.
    ///
    /// # Panics
    /// If a request or watch does not.
    pub fn finish(mut self) {
        let queued = self.drain();
        let limits = self.limits;
        // One event for each watch that lags, and one for a new incarnation.
        assert!(queued <= limits.events_max + 2 * limits.pending_max + limits.watches_max + 1);
        if self.server.is_some() {
            self.settle();
        }
        for (id, _) in self.watches.clone() {
            self.client.unwatch(self.now, id);
        }
        for _ in 0..1_000 {
            self.drain();
            let Some(due) = self.client.poll_timeout() else { break };
            self.pass(due.as_millis().saturating_sub(self.now.instant.as_millis()));
        }
        self.drain();
        assert!(self.accepted.is_empty(), "never completed: {:?}", self.accepted);
        assert!(self.watches.iter().all(|(id, _)| self.log.state(*id).ended), "{:?}", self.log);
        assert_eq!(self.client.poll_timeout(), None);
    }
}
