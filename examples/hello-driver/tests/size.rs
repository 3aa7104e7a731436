//! The smallest driver stays small.

#[test]
fn the_whole_driver_has_at_most_80_lines_without_blanks_and_comments() {
    let source = include_str!("../src/main.rs");
    let lines =
        source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    println!("{lines} lines");
    assert!((20..=80).contains(&lines), "{lines} lines");
}
