//! How a run went, drawn: requests a second and how long they took, over its time.

use std::fmt::Write as _;
use std::time::Duration;

/// One request that was answered: when, from the start of the run on, and how long it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) at: Duration,
    pub(crate) took: Duration,
}

/// Parts that a run is cut into, at most.
const SLICES: usize = 60;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 56.0;
const GAP: f64 = 64.0;

/// What of a slice is drawn, and how: its name, its place of a hundred, its colour.
const LINES: [(&str, usize, &str); 4] = [
    ("max", 100, "#d73027"),
    ("p99", 99, "#fc8d59"),
    ("p90", 90, "#4575b4"),
    ("p50", 50, "#1a9850"),
];

/// The requests of one part of a run.
#[derive(Debug, Default)]
struct Slice {
    took: Vec<Duration>,
}

impl Slice {
    fn at(&self, percent: usize) -> Option<f64> {
        let index = (self.took.len() * percent / 100).min(self.took.len().checked_sub(1)?);
        self.took.get(index).map(|took| took.as_secs_f64() * 1e3)
    }
}

/// Both curves in one drawing, with what they are about.
pub(super) fn svg(title: &str, answered: &[Answered], spent: Duration) -> String {
    let slices = cut(answered, spent);
    let seconds = spent.as_secs_f64().max(1e-9);
    let each = seconds / count(slices.len());
    let rates: Vec<Option<f64>> =
        slices.iter().map(|slice| Some(count(slice.took.len()) / each)).collect();
    let (width, height) = (LEFT + WIDTH + 90.0, TOP + 2.0 * HEIGHT + GAP + 56.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>\n",
        escaped(title)
    );
    let most = nice(rates.iter().flatten().copied().fold(0.0, f64::max));
    let upper = Chart { top: TOP, most, seconds };
    upper.frame("requests a second", &mut svg);
    upper.curve(&rates, "#333333", &mut svg);
    let curves = LINES.map(|(name, percent, colour)| {
        let curve: Vec<Option<f64>> = slices.iter().map(|slice| slice.at(percent)).collect();
        (name, curve, colour)
    });
    let most = curves.iter().flat_map(|(_, curve, _)| curve).flatten().copied().fold(0.0, f64::max);
    let lower = Chart { top: TOP + HEIGHT + GAP, most: nice(most), seconds };
    lower.frame("milliseconds", &mut svg);
    for (number, (name, curve, colour)) in curves.iter().enumerate() {
        lower.curve(curve, colour, &mut svg);
        let (x, y) = (LEFT + WIDTH + 12.0, lower.top + 16.0 + 20.0 * count(number));
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{name}</text>");
    }
    svg.push_str("</svg>\n");
    svg
}

/// What was answered in each of as many equal parts of the time, in order of how long it took.
fn cut(answered: &[Answered], spent: Duration) -> Vec<Slice> {
    // Of few requests each part would have one or none.
    let parts = (answered.len() / 10).clamp(1, SLICES);
    let mut slices: Vec<Slice> = (0..parts).map(|_| Slice::default()).collect();
    let nanos = spent.as_nanos().max(1);
    for one in answered {
        let part = one.at.as_nanos() * u128::try_from(parts).unwrap_or(1) / nanos;
        let part = usize::try_from(part).unwrap_or(parts).min(parts - 1);
        if let Some(slice) = slices.get_mut(part) {
            slice.took.push(one.took);
        }
    }
    slices.iter_mut().for_each(|slice| slice.took.sort_unstable());
    slices
}

/// One pair of axes.
struct Chart {
    top: f64,
    /// What its upper edge stands for.
    most: f64,
    seconds: f64,
}

impl Chart {
    fn frame(&self, unit: &str, svg: &mut String) {
        let (top, bottom, right) = (self.top, self.top + HEIGHT, LEFT + WIDTH);
        let _ =
            writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" fill=\"#555555\">{unit}</text>", top - 8.0);
        for part in 0..=4 {
            let share = f64::from(part) / 4.0;
            let y = bottom - HEIGHT * share;
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{right}\" y2=\"{y}\" stroke=\"#dddddd\"/>\n\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#555555\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                figure(self.most * share)
            );
            let x = LEFT + WIDTH * share;
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555555\">{} s</text>",
                bottom + 18.0,
                figure(self.seconds * share)
            );
        }
    }

    /// A line through what is there; where nothing was answered it is broken.
    fn curve(&self, values: &[Option<f64>], colour: &str, svg: &mut String) {
        let step = WIDTH / count(values.len());
        let mut points = String::new();
        let flush = |points: &mut String, svg: &mut String| {
            if !points.is_empty() {
                let _ = writeln!(
                    svg,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
                    points.trim_end()
                );
                points.clear();
            }
        };
        for (number, value) in values.iter().enumerate() {
            match value {
                Some(value) => {
                    let x = LEFT + step * (count(number) + 0.5);
                    let y = self.top + HEIGHT * (1.0 - (value / self.most).min(1.0));
                    let _ = write!(points, "{x:.1},{y:.1} ");
                }
                None => flush(&mut points, svg),
            }
        }
        flush(&mut points, svg);
    }
}

/// The next number with one digit, or two fives, that is not less.
fn nice(most: f64) -> f64 {
    if !most.is_finite() || most <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(most.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|step| step * power)
        .into_iter()
        .find(|step| *step >= most)
        .unwrap_or(most)
}

fn figure(number: f64) -> String {
    if number >= 100.0 || number == 0.0 {
        format!("{number:.0}")
    } else {
        format!("{number:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a place in a drawing")]
const fn count(number: usize) -> f64 {
    number as f64
}

fn escaped(text: &str) -> String {
    let text: String = text.chars().filter(|char| !char.is_control()).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(requests: usize) -> Vec<Answered> {
        let millis = |number: usize| Duration::from_millis(u64::try_from(number).unwrap());
        (0..requests)
            .map(|number| Answered { at: millis(number), took: millis(1 + number % 7) })
            .collect()
    }

    /// As many elements are closed as are opened, and nothing else is in it.
    fn is_well_formed(svg: &str) {
        let mut open = Vec::new();
        for part in svg.split('<').skip(1) {
            let (tag, _) = part.split_once('>').expect("a tag ends");
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "{svg}"),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split(' ').next().unwrap()),
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        }
        assert!(open.is_empty() && svg.starts_with("<svg "));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_run_is_drawn_part_by_part() {
        for (requests, parts) in [(0, 1), (1, 1), (25, 2), (599, 59), (600, 60), (100_000, 60)] {
            let svg = svg("a <run> & more", &run(requests), Duration::from_millis(requests as u64));
            is_well_formed(&svg);
            assert!(svg.contains("a &lt;run&gt; &amp; more"));
            // The rate is drawn in each part, also where it is none.
            let rate = svg.split("<polyline points=\"").nth(1).unwrap().split('"').next().unwrap();
            assert_eq!(rate.split(' ').count(), parts, "{requests}");
            for (name, _, _) in LINES {
                assert!(svg.contains(&format!(">{name}</text>")));
            }
            let curves = svg.matches("<polyline").count();
            assert_eq!(curves, if requests == 0 { 1 } else { 5 }, "{requests}");
        }
    }

    #[test]
    fn what_is_drawn_is_what_was_measured() {
        let number = |number: u64, each| Duration::from_millis(number * each);
        let answered: Vec<Answered> =
            (0..100).map(|at| Answered { at: number(at, 10), took: number(at, 1) }).collect();
        let slices = cut(&answered, Duration::from_secs(1));
        assert_eq!(slices.len(), 10);
        for (place, slice) in (0_u32..).zip(&slices) {
            let first = f64::from(place * 10);
            assert_eq!(slice.took.len(), 10);
            assert_eq!(
                [0, 50, 100].map(|percent| slice.at(percent)),
                [first, first + 5.0, first + 9.0].map(Some)
            );
        }
        assert_eq!(Slice::default().at(50), None);
        assert_eq!([nice(0.0), nice(3.0), nice(5.0), nice(51_000.0)], [1.0, 5.0, 5.0, 100_000.0]);
    }
}
