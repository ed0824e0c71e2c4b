"""Makes a site of docs/: the repository's README is its home, each rule has a page, and links that leave docs/ lead to the repository."""
import atexit
import os
import re
import shutil
import tempfile

from mkdocs.structure.files import File

SOURCE = "https://github.com/whylate/whylate/blob/main/"


def rules(docs):
    """Yields code, name and text of each rule of findings.md, which is generated."""
    with open(os.path.join(docs, "findings.md"), encoding="utf-8") as f:
        parts = re.split(r"^## (?=WL\d{4} )", f.read(), flags=re.M)
    for part in parts[1:]:
        head, text = part.split("\n", 1)
        code, name = head.split(" ", 1)
        yield code, name, text


def on_files(files, config):
    made = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, made)
    os.mkdir(os.path.join(made, "rules"))
    root = os.path.dirname(config["docs_dir"])
    for path in ["README.md", "README.zh-CN.md"]:  # written for the repository's root
        with open(os.path.join(root, path), encoding="utf-8") as f, open(os.path.join(made, path), "w", encoding="utf-8") as home:
            text = re.sub(r"\]\(docs/README\.md", "](pages.md", f.read())
            home.write(re.sub(r"\]\((?:docs/|(?=[a-zA-Z]+[./)]))(?!README|pages)", lambda m: "](" if m.group(0) == "](docs/" else "](../", text))
    shutil.copy(os.path.join(config["docs_dir"], "README.md"), os.path.join(made, "pages.md"))
    for f in list(files):
        if f.src_path == "README.md":
            files.remove(f)
    for path in ["README.md", "README.zh-CN.md", "pages.md"]:
        files.append(File(path, made, config["site_dir"], config["use_directory_urls"]))
    for code, name, text in rules(config["docs_dir"]):
        path = f"rules/{code}.md"
        with open(os.path.join(made, path), "w", encoding="utf-8") as f:
            f.write(f"# {code} {name}\n{text}")
        files.append(File(path, made, config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_markdown(markdown, page, config, files):
    here = os.path.dirname(page.file.src_path)
    known = {f.src_path for f in files}

    def link(m):
        target, mark, fragment = m.group(1).partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return m.group(0)
        path = os.path.normpath(os.path.join(here, target))
        if here == "rules":  # written for docs/
            path = os.path.normpath(target)
            if path in known:
                return f"](../{path}{mark}{fragment})"
        if path in known:
            return m.group(0)
        if os.path.isdir(os.path.join(config["docs_dir"], path)) and path + "/README.md" in known:
            return f"]({target.rstrip('/')}/README.md)"
        return f"]({SOURCE}{os.path.normpath(os.path.join('docs', path))}{mark}{fragment})"

    if page.file.src_path == "findings.md":  # the list stays, each rule is a page
        markdown = re.split(r"^## (?=WL\d{4} )", markdown, flags=re.M)[0]
        markdown = re.sub(r"\]\(#(wl\d{4})\)", lambda m: f"](rules/{m.group(1).upper()}.md)", markdown)
    return re.sub(r"\]\(([^()\s]+)\)", link, markdown)
