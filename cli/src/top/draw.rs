//! Draws the screen without colours; highlights are bold or inverse.

use std::borrow::Cow;
use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use statestore_server::http::{ClientRow as Client, KeyRow as Key};
use statestore_tokio::diagnostics::text::one_line;

use super::metrics::Metrics;
use super::state::{
    CONDITIONS, Editor, FIELDS, HIGHLIGHT_TIME, Prompt, Screen, SelectedKey, View, WatchState,
};
use super::value::{self, Value};

const NO_METRICS: &str = "no metrics: start the store with `serve --metrics-listen HOST:PORT --traffic`, \
                          and this command with --metrics-url http://HOST:PORT";

/// Largest number that fits into the column of rates.
const RATE_MAX: f64 = 999_999.9;

/// Smallest supported terminal.
const COLUMNS_MIN: u16 = 50;
const ROWS_MIN: u16 = 10;

const HELP: &str = "\
1 2 3 Tab    keys, metrics, traffic
arrows, j k  select a key; PageUp, PageDown, Home, End
/            list the keys of another pattern
r            list the keys again
g            go to a key by name, even if it does not exist
v            show text, JSON or hex
+ -          scroll the value
e            edit: arrows change the field, Tab the condition
d            delete the key, if it still has this value
s            change the order of the traffic
q            quit

The selected key is watched. The protocol does not report the expiry of a value or the fencing
token of a key. These are shown only for values that were set here.";

/// Draws the screen. `broker` is its title, and `now` the time of the last update or later.
pub(crate) fn draw(frame: &mut Frame<'_>, screen: &mut Screen, broker: &str, now: Instant) {
    let area = frame.area();
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        let text = format!("{COLUMNS_MIN} columns and {ROWS_MIN} rows are required");
        return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
    }
    let rows = Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]);
    let [head, body, foot] = rows.areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let tab = |name, view| {
        let style = if screen.view == view { bold.add_modifier(Modifier::REVERSED) } else { bold };
        Span::styled(name, style)
    };
    let connection = match &screen.offline {
        None => Span::raw(format!("  {broker}")),
        Some(reason) => Span::styled(format!("  not connected: {reason}"), bold),
    };
    let tabs = [
        tab(" 1 keys ", View::Keys),
        Span::raw(" "),
        tab(" 2 store ", View::Store),
        Span::raw(" "),
        tab(" 3 traffic ", View::Traffic),
        Span::raw(" "),
        tab(" ? help ", View::Help),
        connection,
    ];
    frame.render_widget(Line::from_iter(tabs), head);
    match screen.view {
        View::Keys => draw_keys(frame, screen, body, now),
        View::Store => draw_metrics(frame, screen, body),
        View::Traffic => draw_traffic(frame, screen, body),
        View::Help => frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }), body),
    }
    draw_footer(frame, screen, foot);
    if let Some(Prompt::Value(editor)) = &screen.prompt {
        draw_editor(frame, editor, body);
    }
}

fn draw_keys(frame: &mut Frame<'_>, screen: &mut Screen, area: Rect, now: Instant) {
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(40), Constraint::Min(0)]).areas(area);
    let state = match &screen.listed {
        None => "listing",
        Some(Ok(())) if screen.is_truncated => "the first",
        Some(Ok(())) => "all",
        Some(Err(_)) => "not listed",
    };
    let inner = Block::bordered().inner(left);
    let columns = usize::from(inner.width);
    let count = format!(" ({state}: {}) ", screen.keys.len());
    let pattern = one_line(screen.pattern.as_bytes());
    let pattern = cut(&pattern, columns.saturating_sub(count.len() + 1));
    let block = Block::bordered().title(format!(" {pattern}{count}"));
    screen.page = usize::from(inner.height).max(1);
    let selected = screen.selected.as_ref().map(|selected| &selected.key);
    let before = selected.map_or(0, |selected| screen.keys.range(..selected.clone()).count());
    let first = before.saturating_sub(screen.page / 2);
    let first = first.min(screen.keys.len().saturating_sub(screen.page));
    let lines = screen.keys.iter().skip(first).take(screen.page).map(|key| {
        let style = match Some(key) == selected {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        Line::styled(cut(&one_line(key), columns).into_owned(), style)
    });
    let lines: Vec<Line<'_>> = lines.collect();
    let list = match &screen.listed {
        Some(Err(reason)) if lines.is_empty() => {
            let lines =
                vec![Line::raw(reason.clone()), Line::raw("press g to go to a key by name")];
            Paragraph::new(lines).wrap(Wrap { trim: false })
        }
        _ => Paragraph::new(lines),
    };
    frame.render_widget(list.block(block), left);
    match &screen.selected {
        Some(selected) => draw_value(frame, screen, selected, right, now),
        None => {
            let hint = Paragraph::new("select a key with the arrows, or press g to enter a name");
            frame.render_widget(hint.block(Block::bordered()), right);
        }
    }
}

/// Cuts a text to this number of columns; an ellipsis replaces the rest.
fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if Span::raw(text).width() <= columns {
        return text.into();
    }
    let mut width = 1;
    let is_inside = |(_, char): &(usize, char)| {
        width += Span::raw(char.encode_utf8(&mut [0; 4]) as &str).width();
        width <= columns
    };
    let end = text.char_indices().take_while(is_inside).last();
    let end = end.map_or(0, |(at, char)| at + char.len_utf8());
    format!("{}…", text.get(..end).unwrap_or_default()).into()
}

fn draw_value(
    frame: &mut Frame<'_>,
    screen: &Screen,
    selected: &SelectedKey,
    area: Rect,
    now: Instant,
) {
    let block = Block::bordered().title(format!(" {} ", one_line(&selected.key)));
    let watch = match &selected.watch {
        WatchState::Registering => "waiting".to_owned(),
        WatchState::Live => "live".to_owned(),
        WatchState::Gap => "gap: changes may be missed".to_owned(),
        WatchState::Ended(reason) => format!("not watched: {reason}"),
    };
    let is_new = selected.changed.is_some_and(|at| now.duration_since(at) < HIGHLIGHT_TIME);
    let changes = match selected.changes {
        0 => String::new(),
        1 => ", 1 change".to_owned(),
        count => format!(", {count} changes"),
    };
    let mark = if is_new { Modifier::REVERSED } else { Modifier::empty() };
    let version = selected.version.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    let (expires, token) = match selected.own_write() {
        None => ("unknown".to_owned(), "unknown".to_owned()),
        Some(set) => (
            set.expires.map_or_else(
                || "never".to_owned(),
                |at| match at.checked_duration_since(now) {
                    Some(left) => format!("in {} s", left.as_secs() + 1),
                    None => "now".to_owned(),
                },
            ),
            set.token.clone().unwrap_or_else(|| "none".to_owned()),
        ),
    };
    let mut lines =
        vec![Line::styled(format!("{watch}{changes}"), Style::new().add_modifier(mark))];
    match &selected.value {
        None if selected.watch == WatchState::Registering => {}
        None => lines.push(Line::raw("no value")),
        Some(Value(value)) => {
            lines.push(Line::raw(format!("version {version}")));
            lines.push(Line::raw(format!("expires {expires}, fence {token}")));
            let columns = usize::from(area.width.saturating_sub(2));
            let (name, all) = value::lines(value, screen.format, columns);
            lines.push(Line::raw(format!("{} bytes, as {name}:", value.len())));
            lines.push(Line::raw(""));
            let height = usize::from(area.height);
            lines.extend(all.into_iter().skip(screen.scroll).take(height).map(Line::raw));
        }
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

fn draw_editor(frame: &mut Frame<'_>, editor: &Editor, area: Rect) {
    let height = 9.min(area.height);
    let width = area.width.saturating_sub(4);
    let y = area.y + (area.height - height) / 2;
    let area = Rect { x: area.x + 2, y, width, height };
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (number, (name, text)) in FIELDS.iter().zip(&editor.fields).enumerate() {
        let is_current = number == editor.field;
        let columns = usize::from(width).saturating_sub(22);
        let count = text.chars().count();
        // The end of the text, where the cursor is.
        let text: String = text.chars().skip(count.saturating_sub(columns)).collect();
        let cursor = if is_current { "_" } else { "" };
        let style = if is_current { Modifier::BOLD } else { Modifier::empty() };
        let line = format!("{name:>14}: {text}{cursor}");
        lines.push(Line::styled(line, Style::new().add_modifier(style)));
    }
    let condition = CONDITIONS.get(editor.condition).unwrap_or(&CONDITIONS[0]);
    lines.push(Line::raw(format!("{:>14}: {condition}", "condition")));
    lines.push(Line::raw(""));
    lines.push(Line::raw("Enter: set, Esc: cancel, Tab: change the condition"));
    lines.push(Line::raw("\\n, \\r, \\t, \\\\ and \\xHH are escapes"));
    let block = Block::bordered().title(format!(" set {} ", one_line(&editor.key)));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_footer(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let line = match &screen.prompt {
        Some(Prompt::Pattern(text)) => format!("pattern: {text}_"),
        Some(Prompt::Key(text)) => format!("key: {text}_"),
        Some(Prompt::Delete) => {
            "y: delete the key, if it still has this value; any other key: cancel".to_owned()
        }
        Some(Prompt::Value(_)) | None if !screen.message.is_empty() => screen.message.clone(),
        _ => "q quit, ? help".to_owned(),
    };
    frame.render_widget(Line::raw(line), area);
}

fn draw_metrics(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let lines = match &screen.metrics {
        Some(Ok(metrics)) => metric_lines(metrics),
        Some(Err(reason)) => vec![Line::raw(reason.clone())],
        None => vec![Line::raw(NO_METRICS)],
    };
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

/// Draws clients above keys.
fn draw_traffic(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let traffic = match &screen.traffic {
        Some(Ok(traffic)) => traffic,
        other => {
            let reason = other.as_ref().and_then(|traffic| traffic.as_ref().err());
            let text = reason.map_or(NO_METRICS, String::as_str);
            return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), area);
        }
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let (client_order, key_order) = screen.order_names();
    let mut clients = vec![Line::styled(" per sec  requests   refused     clock  client", bold)];
    clients.extend(traffic.clients.iter().map(|client| {
        let clock = client.ahead_ms.map_or_else(|| "-".to_owned(), skew);
        let Client { requests, refused, verified, .. } = client;
        let per_second = client.per_second.min(RATE_MAX);
        let claimed = if *verified { "" } else { " (claimed)" };
        let name = client.name();
        Line::raw(format!(
            "{per_second:>8.1}{requests:>10}{refused:>10}{clock:>10}  {name}{claimed}"
        ))
    }));
    let mut keys = vec![Line::styled(" per sec  requests   refused    writes  key", bold)];
    keys.extend(traffic.keys.iter().map(|key| {
        let Key { requests, refused, writes, .. } = key;
        let per_second = key.per_second.min(RATE_MAX);
        let name = key.name();
        Line::raw(format!("{per_second:>8.1}{requests:>10}{refused:>10}{writes:>10}  {name}"))
    }));
    let halves = Layout::vertical([Constraint::Percentage(50), Constraint::Min(0)]);
    let [above, below] = halves.areas(area);
    let titled = |name, order| Block::bordered().title(format!(" {name} by {order} "));
    frame.render_widget(Paragraph::new(clients).block(titled("clients", client_order)), above);
    frame.render_widget(Paragraph::new(keys).block(titled("keys", key_order)), below);
}

/// Formats a clock skew.
fn skew(ahead_ms: i64) -> String {
    let sign = if ahead_ms < 0 { '-' } else { '+' };
    match ahead_ms.unsigned_abs() {
        ms @ ..10_000 => format!("{sign}{ms} ms"),
        ms @ ..10_000_000 => format!("{sign}{} s", ms / 1_000),
        ms => format!("{sign}{} h", ms / 3_600_000),
    }
}

/// Returns the lines of stored keys, requests, latency and refusals.
fn metric_lines(metrics: &Metrics) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let whole = |name: &str| {
        let value = metrics.get(&format!("statestore_{name}"));
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
    };
    let seconds = |name: &str| {
        let value = metrics.get(&format!("statestore_{name}"));
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3} s"))
    };
    let time = |name: &str, part| match metrics.quantile(&format!("statestore_{name}"), part) {
        None => "-".to_owned(),
        Some(bound) if bound.is_finite() => format!("{} ms", bound * 1_000.0),
        Some(_) => "over 10 s".to_owned(),
    };
    let mut lines = vec![
        Line::raw(format!(
            "keys {}   bytes {}   watches {}   waiting {}",
            whole("keys"),
            whole("stored_bytes"),
            whole("watches"),
            whole("waiting_outputs")
        )),
        Line::raw(format!(
            "latency p50 {}   p99 {}   commits p50 {}   p99 {}",
            time("request_duration_seconds", 0.5),
            time("request_duration_seconds", 0.99),
            time("journal_commit_duration_seconds", 0.5),
            time("journal_commit_duration_seconds", 0.99)
        )),
        Line::raw(format!(
            "client clocks: at most {} ahead, {} behind",
            seconds("clock_ahead_max_seconds"),
            seconds("clock_behind_max_seconds")
        )),
        Line::raw(""),
    ];
    let verdicts = metrics.labels("statestore_requests_total", "verdict");
    let width = |verdict: &str| verdict.len().max(7) + 2;
    let heads: Vec<_> =
        verdicts.iter().map(|verdict| format!("{verdict:>0$}", width(verdict))).collect();
    lines.push(Line::styled(format!("{:<15}{}   per sec", "", heads.concat()), bold));
    for verb in metrics.labels("statestore_requests_total", "verb") {
        let name = |verdict: &str| {
            format!("statestore_requests_total{{verb=\"{verb}\",verdict=\"{verdict}\"}}")
        };
        let counts = verdicts.iter().map(|verdict| match metrics.get(&name(verdict)) {
            Some(count) => format!("{count:>0$.0}", width(verdict)),
            None => format!("{:>1$}", "-", width(verdict)),
        });
        let rates = verdicts.iter().filter_map(|verdict| metrics.rate(&name(verdict)));
        let rate = rates.fold(None, |sum: Option<f64>, rate| Some(sum.unwrap_or(0.0) + rate));
        let rate = rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        lines.push(Line::raw(format!("{verb:<15}{}   {rate:>8}", counts.collect::<String>())));
    }
    let refused: Vec<_> = metrics
        .labels("statestore_refusals_total", "reason")
        .into_iter()
        .filter_map(|reason| {
            let name = format!("statestore_refusals_total{{reason=\"{reason}\"}}");
            let count = metrics.get(&name).filter(|count| *count > 0.0)?;
            Some(Line::raw(format!("{reason:<26}{count:>8.0}")))
        })
        .collect();
    if !refused.is_empty() {
        lines.push(Line::raw(""));
        lines.push(Line::styled("refused", bold));
        lines.extend(refused);
    }
    lines
}
