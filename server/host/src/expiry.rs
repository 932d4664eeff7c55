//! Reports when the certificate of the server expires soon or has expired.

use std::time::{Duration, SystemTime};

use tokio::time::{MissedTickBehavior, interval};

use crate::clock::system_now;
use crate::event::{Event, Observer};
use crate::listen::tls::ServerTls;

/// Time before the expiry from which it is reported.
const WARNING: Duration = Duration::from_secs(14 * DAY);
const DAY: u64 = 24 * 60 * 60;

/// Time between two checks. It does not delay the use of a renewed certificate.
const INTERVAL: Duration = Duration::from_secs(60);

/// Remaining validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validity {
    /// For at least 14 days.
    Valid,
    /// For this number of whole days, less than 14.
    ExpiresIn(u64),
    /// It expired this number of whole days ago.
    Expired(u64),
}

impl Validity {
    fn new(not_after: SystemTime, now: SystemTime) -> Self {
        match not_after.duration_since(now) {
            Ok(left) if left.is_zero() => Self::Expired(0),
            Ok(left) if left < WARNING => Self::ExpiresIn(left.as_secs() / DAY),
            Ok(_) => Self::Valid,
            Err(error) => Self::Expired(error.duration().as_secs() / DAY),
        }
    }
}

/// The last report of the expiry.
struct Reports {
    last: Validity,
}

impl Reports {
    /// Returns the event to report now, if any.
    fn next(&mut self, not_after: SystemTime, now: SystemTime) -> Option<Event> {
        let validity = Validity::new(not_after, now);
        if validity == self.last {
            return None;
        }
        self.last = validity;
        match validity {
            Validity::Valid => None,
            Validity::ExpiresIn(days) => Some(Event::CertificateExpiresSoon { not_after, days }),
            Validity::Expired(_) => Some(Event::CertificateExpired { not_after }),
        }
    }
}

/// Reports the expiry of the current certificate once a day, from 14 days before it, and within a
/// minute after it. Never returns; drop the future to stop.
pub(crate) async fn report_expiry(tls: ServerTls, observer: Observer) {
    let mut reports = Reports { last: Validity::Valid };
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let event = tls.not_after().and_then(|not_after| reports.next(not_after, system_now()));
        event.iter().for_each(|event| observer.report(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn not_after() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 * DAY)
    }

    #[test]
    fn validity_is_counted_in_whole_days() {
        let not_after = not_after();
        for (now, expected) in [
            (not_after - WARNING, Validity::Valid),
            (not_after - WARNING + SECOND, Validity::ExpiresIn(13)),
            (not_after - Duration::from_secs(DAY), Validity::ExpiresIn(1)),
            (not_after - SECOND, Validity::ExpiresIn(0)),
            (not_after, Validity::Expired(0)),
            (not_after + SECOND, Validity::Expired(0)),
            (not_after + WARNING, Validity::Expired(14)),
        ] {
            assert_eq!(Validity::new(not_after, now), expected);
        }
    }

    #[test]
    fn expiry_is_reported_once_a_day_and_never_for_a_renewed_certificate() {
        let (not_after, renewed) = (not_after(), not_after() + 100 * WARNING);
        let mut reports = Reports { last: Validity::Valid };
        let mut now = not_after - WARNING - Duration::from_secs(DAY);
        let mut events = Vec::new();
        while now < not_after + Duration::from_secs(2 * DAY) {
            events.extend(reports.next(not_after, now));
            now += INTERVAL;
        }
        assert_eq!(events.len(), 14 + 2, "{events:?}");
        let soon = |event: &&Event| matches!(event, Event::CertificateExpiresSoon { .. });
        assert_eq!(events.iter().filter(soon).count(), 14, "{events:?}");
        assert!(reports.next(renewed, now).is_none());
        assert!(reports.next(renewed, renewed - SECOND).is_some(), "again for the new one");
    }
}
