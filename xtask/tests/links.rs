//! Links in documents lead somewhere: to a file that there is, and to a heading that it has.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::{collections::BTreeSet, fs, path::Path};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

/// Written by `cargo xtask bench` from parts that lie elsewhere.
const GENERATED: &str = "benchmarks.md";

fn links(text: &str) -> Vec<String> {
    let targets = Parser::new(text).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    });
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// The anchors of a document's headings, as GitHub makes them: the second of a name ends in `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let twins = (1..).map(|number| format!("{slug}-{number}"));
                let free = std::iter::once(slug.clone()).chain(twins).find(|name| !anchors.contains(name));
                anchors.extend(free);
            }
            _ => {}
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// What is wrong with a link of a document, if anything.
fn broken(document: &Path, text: &str, link: &str) -> Option<String> {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target =
        if file.is_empty() { document.to_owned() } else { document.parent().unwrap_or(document).join(file) };
    if !target.exists() {
        return Some("there is no such file".to_owned());
    }
    let anchor = anchor?;
    let text = if file.is_empty() { text.to_owned() } else { fs::read_to_string(&target).ok()? };
    (!anchors(&text).contains(anchor)).then(|| "there is no such heading".to_owned())
}

#[test]
fn links_between_documents_lead_to_files_and_headings_that_there_are() {
    let root = Path::new(transcript::WORKSPACE);
    let documents: Vec<_> = transcript::documents().unwrap().iter().map(|path| root.join(path)).collect();
    let mut count = 0;
    let mut wrong = Vec::new();
    for document in &documents {
        let text = fs::read_to_string(document).unwrap();
        // Parts of docs/benchmarks.md are read from where they will stand.
        let is_part = document.parent().is_some_and(|folder| folder.ends_with("bench/src/report"));
        let document = &if is_part { root.join("docs").join(GENERATED) } else { document.clone() };
        // In documents of crates a link in brackets and backticks is one of rustdoc, which checks it itself.
        for link in links(&text) {
            count += 1;
            let broken = broken(document, &text, &link);
            wrong.extend(broken.map(|why| format!("{}: {link}: {why}", document.display())));
        }
    }
    assert!(documents.len() > 20 && count > 100, "{} documents with {count} links", documents.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn broken_links_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let document = folder.path().join("a.md");
    let text = "# One `two` & three\n[x](b.md#there) [y](#one-two--three)\n```\n[z](nowhere)\n```\n";
    fs::write(&document, text).unwrap();
    fs::write(folder.path().join("b.md"), "## There\n## There\n").unwrap();
    assert_eq!(links(text), ["b.md#there", "#one-two--three"]);
    for link in ["b.md", "b.md#there", "b.md#there-1", "#one-two--three", "."] {
        assert_eq!(broken(&document, text, link), None, "{link}");
    }
    for link in ["c.md", "b.md#here", "b.md#there-2", "#two"] {
        assert!(broken(&document, text, link).is_some(), "{link}");
    }
}
