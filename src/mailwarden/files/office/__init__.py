"""Reading Office documents: OOXML, OpenDocument, compound files, RTF and OneNote."""
