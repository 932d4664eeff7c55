//! Reports when the certificate of the server expires soon or has expired.

use std::time::{Duration, SystemTime};

use tokio::time::{MissedTickBehavior, interval};

use crate::clock::system_now;
use crate::event::{Event, Observer};
use crate::listen::tls::ServerTls;

/// Time before the expiry from which it is reported.
const WARNING: Duration = Duration::from_secs(14 * DAY);
const DAY: u64 = 24 * 60 * 60;

/// Time between two checks. A renewed certificate is in use long before, see
/// [`Reloader`](crate::Reloader).
const INTERVAL: Duration = Duration::from_secs(60);

/// How long a certificate is still valid.
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

/// Reports the expiry of the current certificate from 14 days before it, once a day, and at the
/// time of the expiry. Never returns; drop the future to stop.
pub(crate) async fn report_expiry(tls: ServerTls, observer: Observer) {
    let mut reported = Validity::Valid;
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(not_after) = tls.not_after() else { continue };
        let validity = Validity::new(not_after, system_now());
        if validity == reported {
            continue;
        }
        reported = validity;
        match validity {
            Validity::Valid => {}
            Validity::ExpiresIn(days) => {
                observer.report(&Event::CertificateExpires { not_after, days });
            }
            Validity::Expired(_) => observer.report(&Event::CertificateExpired { not_after }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_reported_from_14_days_before_and_once_a_day() {
        let not_after = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 * DAY);
        let second = Duration::from_secs(1);
        for (now, expected) in [
            (not_after - WARNING, Validity::Valid),
            (not_after - WARNING + second, Validity::ExpiresIn(13)),
            (not_after - WARNING / 14, Validity::ExpiresIn(1)),
            (not_after - second, Validity::ExpiresIn(0)),
            (not_after, Validity::Expired(0)),
            (not_after + second, Validity::Expired(0)),
            (not_after + WARNING, Validity::Expired(14)),
        ] {
            assert_eq!(Validity::new(not_after, now), expected);
        }
    }
}
