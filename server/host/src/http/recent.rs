//! A rate limit for texts that are costly to render.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Period of the rate limit.
const PERIOD: Duration = Duration::from_millis(200);

/// Maximum number of texts that are rendered in a period.
const RENDERED_MAX: u32 = 5;

/// Renders a text at most [`RENDERED_MAX`] times in a [`PERIOD`]. Further requests receive the
/// latest text, so clients that flood the port take little time from the store on the same thread.
#[derive(Debug, Default)]
pub(super) struct RecentText(Mutex<Option<Rendered>>);

#[derive(Debug)]
struct Rendered {
    text: String,
    /// Start of the period.
    since: Instant,
    /// Number of texts that were rendered in the period.
    count: u32,
}

impl RecentText {
    /// Returns the text of `render`, or the latest one, which is at most as old as a period.
    pub(super) fn get(&self, now: Instant, render: impl FnOnce() -> String) -> String {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = match &*recent {
            Some(rendered) if now.saturating_duration_since(rendered.since) < PERIOD => {
                if rendered.count >= RENDERED_MAX {
                    return rendered.text.clone();
                }
                (rendered.since, rendered.count + 1)
            }
            _ => (now, 1),
        };
        let text = render();
        *recent = Some(Rendered { text: text.clone(), since, count });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_renders_a_few_texts_and_a_later_request_a_new_one() {
        let (recent, start) = (RecentText::default(), Instant::now());
        let mut rendered = 0;
        let mut get = |after: Duration| {
            let text = recent.get(start + after, || {
                rendered += 1;
                rendered.to_string()
            });
            text.parse::<u32>().unwrap()
        };
        let all: Vec<u32> = (0..1_000).map(|number| get(PERIOD / 1_000 * number)).collect();
        assert_eq!(all[..7], [1, 2, 3, 4, 5, 5, 5]);
        assert_eq!(all[999], RENDERED_MAX);
        assert_eq!(get(PERIOD), RENDERED_MAX + 1);
        assert_eq!(get(PERIOD * 3), RENDERED_MAX + 2);
    }
}
