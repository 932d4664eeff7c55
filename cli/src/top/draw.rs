//! The screen, drawn. Without colours: what stands out is bold or inverse.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::numbers::Numbers;
use super::state::{CONDITIONS, Editor, FIELDS, MARKED, Screen, Shown, Standing, Typing, View};
use super::value;
use crate::escape::one_line;
use crate::traffic::{Client, Key};

const NO_NUMBERS: &str = "no numbers: start the store with `serve --metrics HOST:PORT --traffic`, and this with --metrics http://HOST:PORT";

/// What there is room for in a column.
const RATE_MAX: f64 = 999_999.9;

/// The smallest terminal on which all of it can be read.
const COLUMNS_MIN: u16 = 50;
const ROWS_MIN: u16 = 10;

const HELP: &str = "\
1 2 3 Tab    keys, numbers of the store, who asks for what
arrows, j k  another key; PageUp, PageDown, Home, End
/            list the keys of another pattern
r            list them again
g            a key by its name, also one without a value
v            text, JSON, hex
+ -          scroll the value
e            edit: arrows change the field, Tab the condition
d            delete, if it still has the value shown
s            another order of who asks for what
q            the end

Changes of the key that is chosen come by themselves. When a value expires and which token fences a key, the protocol does not tell;
it is shown of what was set here.";

pub(super) fn draw(frame: &mut Frame<'_>, screen: &mut Screen, broker: &str, now: Instant) {
    let area = frame.area();
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        let text = format!("{COLUMNS_MIN} columns and {ROWS_MIN} rows are needed");
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
        View::Keys => keys(frame, screen, body, now),
        View::Store => store(frame, screen, body),
        View::Traffic => traffic(frame, screen, body),
        View::Help => frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }), body),
    }
    footer(frame, screen, foot);
    if let Some(Typing::Value(editor)) = &screen.typing {
        edit(frame, editor, body);
    }
}

fn keys(frame: &mut Frame<'_>, screen: &mut Screen, area: Rect, now: Instant) {
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(40), Constraint::Min(0)]).areas(area);
    let state = match &screen.listed {
        None => "listing",
        Some(Ok(())) if screen.is_cut => "the first",
        Some(Ok(())) => "all",
        Some(Err(_)) => "not listed",
    };
    let title =
        format!(" {} ({state}: {}) ", one_line(screen.pattern.as_bytes()), screen.keys.len());
    let block = Block::bordered().title(title);
    let inner = block.inner(left);
    screen.page = usize::from(inner.height).max(1);
    let chosen = screen.shown.as_ref().map(|shown| &shown.key);
    let before = chosen.map_or(0, |chosen| screen.keys.range(..chosen.clone()).count());
    let first = before.saturating_sub(screen.page / 2);
    let first = first.min(screen.keys.len().saturating_sub(screen.page));
    let lines = screen.keys.iter().skip(first).take(screen.page).map(|key| {
        let style = match Some(key) == chosen {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        Line::styled(one_line(key).into_owned(), style)
    });
    let mut lines: Vec<Line<'_>> = lines.collect();
    if let (Some(Err(reason)), true) = (&screen.listed, lines.is_empty()) {
        lines.push(Line::raw(reason.clone()));
        lines.push(Line::raw("g goes to a key by its name"));
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), left);
    match &screen.shown {
        Some(shown) => entry(frame, screen, shown, right, now),
        None => {
            let hint = Paragraph::new("choose a key with the arrows, or name one with g");
            frame.render_widget(hint.block(Block::bordered()), right);
        }
    }
}

fn entry(frame: &mut Frame<'_>, screen: &Screen, shown: &Shown, area: Rect, now: Instant) {
    let block = Block::bordered().title(format!(" {} ", one_line(&shown.key)));
    let standing = match &shown.standing {
        Standing::Asked => "asked for".to_owned(),
        Standing::Live => "live".to_owned(),
        Standing::Gap => "a gap: changes may be missed".to_owned(),
        Standing::Over(why) => format!("not watched: {why}"),
    };
    let is_new = shown.changed.is_some_and(|at| now.duration_since(at) < MARKED);
    let changes = match shown.changes {
        0 => String::new(),
        1 => ", 1 change".to_owned(),
        count => format!(", {count} changes"),
    };
    let mark = if is_new { Modifier::REVERSED } else { Modifier::empty() };
    let version = shown.version.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    let (expires, token) = match shown.set_here() {
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
        vec![Line::styled(format!("{standing}{changes}"), Style::new().add_modifier(mark))];
    match &shown.value {
        None if shown.standing == Standing::Asked => {}
        None => lines.push(Line::raw("no value")),
        Some(value) => {
            lines.push(Line::raw(format!("version {version}")));
            lines.push(Line::raw(format!("expires {expires}, fence {token}")));
            let columns = usize::from(area.width.saturating_sub(2));
            let (name, all) = value::lines(value, screen.form, columns);
            lines.push(Line::raw(format!("{} bytes, as {name}:", value.len())));
            lines.push(Line::raw(""));
            let height = usize::from(area.height);
            lines.extend(all.into_iter().skip(screen.scroll).take(height).map(Line::raw));
        }
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

fn edit(frame: &mut Frame<'_>, editor: &Editor, area: Rect) {
    let height = 9.min(area.height);
    let width = area.width.saturating_sub(4);
    let y = area.y + (area.height - height) / 2;
    let area = Rect { x: area.x + 2, y, width, height };
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (number, (name, text)) in FIELDS.iter().zip(&editor.fields).enumerate() {
        let is_at = number == editor.at;
        let room = usize::from(width).saturating_sub(22);
        let count = text.chars().count();
        // Its end, where it is typed.
        let text: String = text.chars().skip(count.saturating_sub(room)).collect();
        let cursor = if is_at { "_" } else { "" };
        let style = if is_at { Modifier::BOLD } else { Modifier::empty() };
        let line = format!("{name:>14}: {text}{cursor}");
        lines.push(Line::styled(line, Style::new().add_modifier(style)));
    }
    let condition = CONDITIONS.get(editor.condition).unwrap_or(&CONDITIONS[0]);
    lines.push(Line::raw(format!("{:>14}: {condition}", "set it")));
    lines.push(Line::raw(""));
    lines.push(Line::raw("Enter sets it, Esc does not, Tab changes the condition"));
    lines.push(Line::raw("\\n, \\r, \\t, \\\\ and \\xHH stand for bytes"));
    let block = Block::bordered().title(format!(" set {} ", one_line(&editor.key)));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn footer(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let line = match &screen.typing {
        Some(Typing::Pattern(text)) => format!("pattern: {text}_"),
        Some(Typing::Key(text)) => format!("key: {text}_"),
        Some(Typing::Deletes) => {
            "y deletes it, if it still has the value shown; any other key does not".to_owned()
        }
        Some(Typing::Value(_)) | None if !screen.said.is_empty() => screen.said.clone(),
        _ => "q ends, ? helps".to_owned(),
    };
    frame.render_widget(Line::raw(line), area);
}

fn store(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let lines = match &screen.numbers {
        Some(Ok(numbers)) => of_numbers(numbers),
        Some(Err(reason)) => vec![Line::raw(reason.clone())],
        None => vec![Line::raw(NO_NUMBERS)],
    };
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

/// Clients above, keys below.
fn traffic(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    let traffic = match &screen.traffic {
        Some(Ok(traffic)) => traffic,
        other => {
            let reason = other.as_ref().and_then(|told| told.as_ref().err());
            let text = reason.map_or(NO_NUMBERS, String::as_str);
            return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), area);
        }
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let (of_clients, of_keys) = screen.ordered_by();
    let mut clients = vec![Line::styled("a second  requests   refused     clock  client", bold)];
    clients.extend(traffic.clients.iter().map(|client| {
        let clock = client.ahead_ms.map_or_else(|| "-".to_owned(), off_by);
        let Client { requests, refused, verified, .. } = client;
        let per_second = client.per_second.min(RATE_MAX);
        let claimed = if *verified { "" } else { " (claimed)" };
        let name = client.name();
        Line::raw(format!(
            "{per_second:>8.1}{requests:>10}{refused:>10}{clock:>10}  {name}{claimed}"
        ))
    }));
    let mut keys = vec![Line::styled("a second  requests   refused    writes  key", bold)];
    keys.extend(traffic.keys.iter().map(|key| {
        let Key { requests, refused, writes, .. } = key;
        let per_second = key.per_second.min(RATE_MAX);
        let name = key.name();
        Line::raw(format!("{per_second:>8.1}{requests:>10}{refused:>10}{writes:>10}  {name}"))
    }));
    let halves = Layout::vertical([Constraint::Percentage(50), Constraint::Min(0)]);
    let [above, below] = halves.areas(area);
    let titled = |name, order| Block::bordered().title(format!(" {name} by {order} "));
    frame.render_widget(Paragraph::new(clients).block(titled("clients", of_clients)), above);
    frame.render_widget(Paragraph::new(keys).block(titled("keys", of_keys)), below);
}

/// How far a clock is ahead, with its sign.
fn off_by(ahead_ms: i64) -> String {
    let sign = if ahead_ms < 0 { '-' } else { '+' };
    match ahead_ms.unsigned_abs() {
        ms @ ..10_000 => format!("{sign}{ms} ms"),
        ms @ ..10_000_000 => format!("{sign}{} s", ms / 1_000),
        ms => format!("{sign}{} h", ms / 3_600_000),
    }
}

/// The numbers as lines: what is held, what is asked and how fast that is answered, and what is refused.
fn of_numbers(numbers: &Numbers) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let whole = |name: &str| {
        let value = numbers.get(&format!("statestore_{name}"));
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
    };
    let seconds = |name: &str| {
        let value = numbers.get(&format!("statestore_{name}"));
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3} s"))
    };
    let time = |name: &str, part| match numbers.quantile(&format!("statestore_{name}"), part) {
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
            "answered within p50 {}   p99 {}   commits p50 {}   p99 {}",
            time("request_duration_seconds", 0.5),
            time("request_duration_seconds", 0.99),
            time("journal_commit_duration_seconds", 0.5),
            time("journal_commit_duration_seconds", 0.99)
        )),
        Line::raw(format!(
            "clocks of clients: {} ahead, {} behind at most",
            seconds("clock_ahead_max_seconds"),
            seconds("clock_behind_max_seconds")
        )),
        Line::raw(""),
    ];
    let verdicts = numbers.labels("statestore_requests_total", "verdict");
    let width = |verdict: &str| verdict.len().max(7) + 2;
    let heads: Vec<_> =
        verdicts.iter().map(|verdict| format!("{verdict:>0$}", width(verdict))).collect();
    lines.push(Line::styled(format!("{:<15}{}   a second", "", heads.concat()), bold));
    for verb in numbers.labels("statestore_requests_total", "verb") {
        let name = |verdict: &str| {
            format!("statestore_requests_total{{verb=\"{verb}\",verdict=\"{verdict}\"}}")
        };
        let counts = verdicts.iter().map(|verdict| match numbers.get(&name(verdict)) {
            Some(count) => format!("{count:>0$.0}", width(verdict)),
            None => format!("{:>1$}", "-", width(verdict)),
        });
        let rates = verdicts.iter().filter_map(|verdict| numbers.rate(&name(verdict)));
        let rate = rates.fold(None, |sum: Option<f64>, rate| Some(sum.unwrap_or(0.0) + rate));
        let rate = rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        lines.push(Line::raw(format!("{verb:<15}{}   {rate:>8}", counts.collect::<String>())));
    }
    let refused: Vec<_> = numbers
        .labels("statestore_refusals_total", "reason")
        .into_iter()
        .filter_map(|reason| {
            let name = format!("statestore_refusals_total{{reason=\"{reason}\"}}");
            let count = numbers.get(&name).filter(|count| *count > 0.0)?;
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
