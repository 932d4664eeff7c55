//! What is expected of answers and notifications.

use std::time::Duration;

use crate::ask::{Ask, By, Dialect, ask, blob, notification_topic, notify_set, show};
use crate::report::{NOT_ALLOWED, Verdict};
use crate::trial::{ABSENT, Done, OK, Reply, Stop, Trial, is_notification};
use crate::version::Stamp;
use crate::wire::Message;

/// How much later than an answer a notification may come from a store that keeps no order.
const QUIET: Duration = Duration::from_millis(25);

impl Trial {
    /// The answer is this.
    pub(crate) async fn expect(
        &mut self,
        ask: &Ask,
        payload: impl AsRef<[u8]>,
    ) -> Result<Reply, Stop> {
        self.judge(ask, payload.as_ref(), Verdict::Fail).await
    }

    /// The answer is this by our choice.
    pub(crate) async fn chosen(
        &mut self,
        ask: &Ask,
        payload: impl AsRef<[u8]>,
    ) -> Result<Reply, Stop> {
        self.judge(ask, payload.as_ref(), Verdict::Differs).await
    }

    async fn judge(&mut self, ask: &Ask, payload: &[u8], or: Verdict) -> Result<Reply, Stop> {
        let reply = self.ask(ask).await?;
        if reply.0.payload != payload {
            // Whatever else is asked in this case follows from it.
            if payload == OK && reply.error() == Some("the quota has been exceeded") {
                let text = "expected +OK\\r\\n, and the store has no room for another key";
                return Err(Stop::Missing(text.into()));
            }
            self.found(or, format_args!("expected {}", show(payload)));
        }
        Ok(reply)
    }

    /// The answer is an error with this text.
    pub(crate) async fn refused(&mut self, ask: &Ask, text: &str) -> Result<Reply, Stop> {
        self.judge_refusal(ask, text, Verdict::Fail).await
    }

    /// The same by our choice.
    pub(crate) async fn chosen_refusal(&mut self, ask: &Ask, text: &str) -> Result<Reply, Stop> {
        self.judge_refusal(ask, text, Verdict::Differs).await
    }

    async fn judge_refusal(&mut self, ask: &Ask, text: &str, or: Verdict) -> Result<Reply, Stop> {
        let reply = self.ask(ask).await?;
        let payload = format!("-ERR {text}\r\n");
        if reply.0.payload != payload {
            // The page misprints one text, and has a colon in some.
            let same = reply
                .error()
                .is_some_and(|told| told.replace("version that", "version than") == text);
            let verdict = if same { Verdict::Differs } else { or };
            self.found(verdict, format_args!("expected {}", show(payload.as_bytes())));
        }
        Ok(reply)
    }

    /// The answer says that it was not applied, in the dialect of who asks.
    pub(crate) async fn not_applied(&mut self, ask: &Ask) -> Result<Reply, Stop> {
        let reply = self.ask(ask).await?;
        let seen = Dialect::BOTH.into_iter().find(|form| reply.0.payload == form.not_applied());
        let own = ask.dialect.not_applied();
        match seen {
            Some(seen) => {
                self.dialects[ask.dialect as usize] = Some(seen);
                self.may(seen == ask.dialect, format_args!("expected {}", show(own)));
            }
            None => self.must(false, format_args!("expected {}", show(own))),
        }
        Ok(reply)
    }

    /// A SET that is applied; its version, empty when there is none.
    pub(crate) async fn set(&mut self, key: &[u8], value: &str) -> Result<String, Stop> {
        let reply = self.expect(&ask!["SET", key, value], OK).await?;
        Ok(reply.timestamp().unwrap_or_default().to_owned())
    }

    /// Returns whether GET has this value.
    pub(crate) async fn has(&mut self, key: &[u8], value: Option<&str>) -> Result<Reply, Stop> {
        let expected = value.map_or_else(|| ABSENT.to_vec(), |value| blob(value.as_bytes()));
        self.expect(&ask!["GET", key], expected).await
    }

    // Notifications.

    /// The next notification.
    pub(crate) async fn notification(&mut self, by: By) -> Result<Message, Stop> {
        let notification = self.receive(by, is_notification).await?;
        notification.ok_or_else(|| Stop::Missing("no notification in time".into()))
    }

    /// The next notification is of a SET with this value and version.
    pub(crate) async fn told_set(
        &mut self,
        by: By,
        key: &[u8],
        value: &str,
        version: &str,
    ) -> Done {
        let message = self.notification(by).await?;
        self.is_about(by, key, &message, version);
        let expected = notify_set(value.as_bytes());
        let told = show(&message.payload);
        self.must(
            message.payload == expected,
            format_args!("expected the notification {}, got {told}", show(&expected)),
        );
        Ok(())
    }

    /// The next notification is of a removal; registered in this dialect.
    pub(crate) async fn told_deleted(
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
        let (expected, told) = (show(dialect.deleted()), show(&message.payload));
        let text = format!("expected the notification {expected}, got {told}");
        match Dialect::BOTH.into_iter().find(|form| message.payload == form.deleted()) {
            Some(seen) => self.may(seen == dialect, text),
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
        let told = message.property("__ts").unwrap_or("none");
        let same = told == version
            || Stamp::parse(told).is_some_and(|told| Some(told) == Stamp::parse(version));
        self.must(
            same,
            format_args!(
                "expected a notification with __ts {version}, got {}",
                show(told.as_bytes())
            ),
        );
    }

    /// No notification has come that was not taken. The answer to another request comes after all before it; where it does
    /// not, a moment more shows it.
    pub(crate) async fn quiet(&mut self, by: By) -> Done {
        let nothing = self.key("nothing is here");
        self.expect(&ask!["GET", nothing].by(by), ABSENT).await?;
        self.listen(by, QUIET).await?;
        while let Some(message) = self.heard(by) {
            let (topic, payload) = (show(message.topic.as_bytes()), show(&message.payload));
            self.must(false, format_args!("a notification too many: {payload} on {topic}"));
        }
        Ok(())
    }
}

impl Reply {
    /// Access rules are the store's own, and no case is about them: one that meets with them goes no further.
    pub(crate) fn allowed(self) -> Result<Self, Stop> {
        match self.error() {
            Some("not authorized") => Err(Stop::Skipped(NOT_ALLOWED)),
            _ => Ok(self),
        }
    }
}
