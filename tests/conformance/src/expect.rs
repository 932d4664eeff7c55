//! Expectations about replies and notifications.

use std::time::Duration;

use crate::report::{NOT_ALLOWED, Verdict};
use crate::request::{By, Dialect, Request, blob, notification_topic, notify_set, request, show};
use crate::trial::{ABSENT, Done, OK, Reply, Stop, Trial, is_notification};
use crate::version::Stamp;
use crate::wire::Message;

/// Maximum delay of a notification after a reply, for stores that do not order them.
const QUIET: Duration = Duration::from_millis(25);

impl Trial {
    /// Expects this reply; anything else is a failure.
    pub(crate) async fn expect(
        &mut self,
        request: &Request,
        payload: impl AsRef<[u8]>,
    ) -> Result<Reply, Stop> {
        self.judge(request, payload.as_ref(), Verdict::Fail).await
    }

    /// Expects this reply; anything else is a difference.
    pub(crate) async fn expect_by_choice(
        &mut self,
        request: &Request,
        payload: impl AsRef<[u8]>,
    ) -> Result<Reply, Stop> {
        self.judge(request, payload.as_ref(), Verdict::Differs).await
    }

    async fn judge(
        &mut self,
        request: &Request,
        payload: &[u8],
        or: Verdict,
    ) -> Result<Reply, Stop> {
        let reply = self.request(request).await?;
        if reply.0.payload != payload {
            // The remaining requests of this case would fail as a consequence.
            if payload == OK && reply.error() == Some("the quota has been exceeded") {
                let text = "expected +OK\\r\\n, but the store is full";
                return Err(Stop::Missing(text.into()));
            }
            self.found(or, format_args!("expected {}", show(payload)));
        }
        Ok(reply)
    }

    /// Expects an error with this text; anything else is a failure.
    pub(crate) async fn expect_refusal(
        &mut self,
        request: &Request,
        text: &str,
    ) -> Result<Reply, Stop> {
        self.judge_refusal(request, text, Verdict::Fail).await
    }

    /// Expects an error with this text; anything else is a difference.
    pub(crate) async fn expect_refusal_by_choice(
        &mut self,
        request: &Request,
        text: &str,
    ) -> Result<Reply, Stop> {
        self.judge_refusal(request, text, Verdict::Differs).await
    }

    async fn judge_refusal(
        &mut self,
        request: &Request,
        text: &str,
        or: Verdict,
    ) -> Result<Reply, Stop> {
        let reply = self.request(request).await?;
        let payload = format!("-ERR {text}\r\n");
        if reply.0.payload != payload {
            // The specification misprints one text, and has a colon in some texts.
            let same = reply
                .error()
                .is_some_and(|got| got.replace("version that", "version than") == text);
            let verdict = if same { Verdict::Differs } else { or };
            self.found(verdict, format_args!("expected {}", show(payload.as_bytes())));
        }
        Ok(reply)
    }

    /// Expects the reply "not applied" in the dialect of the request.
    pub(crate) async fn not_applied(&mut self, request: &Request) -> Result<Reply, Stop> {
        let reply = self.request(request).await?;
        let seen = Dialect::BOTH.into_iter().find(|form| reply.0.payload == form.not_applied());
        let own = request.dialect.not_applied();
        match seen {
            Some(seen) => {
                self.dialects[request.dialect as usize] = Some(seen);
                self.should(seen == request.dialect, format_args!("expected {}", show(own)));
            }
            None => self.must(false, format_args!("expected {}", show(own))),
        }
        Ok(reply)
    }

    /// Expects that a SET is applied. Returns its version, or an empty text.
    pub(crate) async fn set(&mut self, key: &[u8], value: &str) -> Result<String, Stop> {
        let reply = self.expect(&request!["SET", key, value], OK).await?;
        Ok(reply.timestamp().unwrap_or_default().to_owned())
    }

    /// Expects that GET returns this value.
    pub(crate) async fn expect_value(
        &mut self,
        key: &[u8],
        value: Option<&str>,
    ) -> Result<Reply, Stop> {
        let expected = value.map_or_else(|| ABSENT.to_vec(), |value| blob(value.as_bytes()));
        self.expect(&request!["GET", key], expected).await
    }

    // Notifications.

    /// Waits for the next notification.
    pub(crate) async fn notification(&mut self, by: By) -> Result<Message, Stop> {
        let notification = self.receive(by, is_notification).await?;
        notification.ok_or_else(|| Stop::Missing("no notification in time".into()))
    }

    /// Expects a notification of a SET with this value and version.
    pub(crate) async fn expect_set_notification(
        &mut self,
        by: By,
        key: &[u8],
        value: &str,
        version: &str,
    ) -> Done {
        let message = self.notification(by).await?;
        self.is_about(by, key, &message, version);
        let expected = notify_set(value.as_bytes());
        let got = show(&message.payload);
        self.must(
            message.payload == expected,
            format_args!("expected the notification {}, got {got}", show(&expected)),
        );
        Ok(())
    }

    /// Expects a notification of a removal, in the dialect of the registration.
    pub(crate) async fn expect_delete_notification(
        &mut self,
        by: By,
        key: &[u8],
        version: &str,
        dialect: Dialect,
    ) -> Done {
        let message = self.notification(by).await?;
        self.is_about(by, key, &message, version);
        self.is_deletion(&message, dialect);
        Ok(())
    }

    pub(crate) fn is_deletion(&mut self, message: &Message, dialect: Dialect) {
        let (expected, got) = (show(dialect.deleted()), show(&message.payload));
        let text = format!("expected the notification {expected}, got {got}");
        match Dialect::BOTH.into_iter().find(|form| message.payload == form.deleted()) {
            Some(seen) => self.should(seen == dialect, text),
            None => self.must(false, text),
        }
    }

    fn is_about(&mut self, by: By, key: &[u8], message: &Message, version: &str) {
        let topic = notification_topic(&self.client_id(by), Some(key));
        let (qos, retain) = (message.qos, message.retain);
        self.must(
            qos == 1 && !retain,
            format_args!(
                "expected a notification at QoS 1, not retained, got QoS {qos}, retained {retain}"
            ),
        );
        self.must(
            message.topic == topic,
            format_args!(
                "expected a notification on {topic}, got one on {}",
                show(message.topic.as_bytes())
            ),
        );
        let got = message.property("__ts").unwrap_or("none");
        let same = got == version
            || Stamp::parse(got).is_some_and(|got| Some(got) == Stamp::parse(version));
        self.must(
            same,
            format_args!(
                "expected a notification with __ts {version}, got {}",
                show(got.as_bytes())
            ),
        );
    }

    /// Expects that no further notification arrives. The reply to a later request follows all
    /// earlier notifications in ordered stores; for other stores, wait a moment longer.
    pub(crate) async fn expect_no_notification(&mut self, by: By) -> Done {
        let nothing = self.key("absent");
        self.expect(&request!["GET", nothing].by(by), ABSENT).await?;
        self.receive_for(by, QUIET).await?;
        while let Some(message) = self.take_notification(by) {
            let (topic, payload) = (show(message.topic.as_bytes()), show(&message.payload));
            self.must(false, format_args!("unexpected notification: {payload} on {topic}"));
        }
        Ok(())
    }
}

impl Reply {
    /// Skips the case if the store does not authorize the request: no case is about access rules.
    pub(crate) fn allowed(self) -> Result<Self, Stop> {
        match self.error() {
            Some("not authorized") => Err(Stop::Skipped(NOT_ALLOWED)),
            _ => Ok(self),
        }
    }
}
