"""Text that nobody may touch: how people write, in scripts whose spelling needs what attackers misuse."""

from __future__ import annotations

import emoji

#: Every sequence of Unicode's emoji-test.txt, in all its forms (fully, minimally, not qualified, components), by the
#: package emoji, which is made from it.
EMOJI: tuple[str, ...] = tuple(emoji.EMOJI_DATA)

SCRIPTS: dict[str, str] = {
    "Persian": "می\u200cروم، کتاب\u200cها را می\u200cخوانم؛ خانه\u200cای بزرگ. نمی\u200cدانم\u200cشان",
    "Urdu": "تمام انسان آزاد اور حقوق و عزت کے اعتبار سے برابر پیدا ہوئے ہیں۔ آپ کا شکریہ",
    "Arabic": "يولد جميع الناس أحرارًا متساوين. بِسْمِ ٱللَّٰهِ ٱلرَّحْمَٰنِ ٱلرَّحِيمِ \u200fعربي\u200e (2) \u061c٣",
    "Quran": "قُلْ هُوَ ٱللَّهُ أَحَدٌ ۝١ ٱللَّهُ ٱلصَّمَدُ ۝٢ ۞ وَلَا ٱلضَّآلِّينَ ۖ ۗ ۚ",
    "Hebrew": "שלום\u200f (a) בְּרֵאשִׁ֖ית בָּרָ֣א אֱלֹהִ֑ים אֵ֥ת הַשָּׁמַ֖יִם וְאֵ֥ת הָאָֽרֶץ׃",
    "Yiddish": "ייִדיש איז אַ שפּראַך וואָס",
    "Syriac": "ܫܠܡܐ ܥܠܝܟܘܢ ܒܪܵܫܝܼܬ݂",
    "Thaana": "އެންމެހައި އިންސާނުން",
    "NKo": "ߒߞߏ ߘߋ߲߱",
    "Devanagari": "क्षि क्\u200dष र्\u200dय श्री हिन्दी में क़ानून, नमस्ते। क्\u200cष ॐ त्र्यम्बकं यजामहे",
    "Nepali": "नेपाल\u200cको गर्\u200dयो सरकार\u200cले",
    "Vedic": "अ॒ग्निमी॑ळे पु॒रोहि॑तं य॒ज्ञस्य॑",
    "Bengali": "বাংলা ক্\u200dষ ক্\u200cষ র\u200d্যাব উৎসব",
    "Gurmukhi": "ਪੰਜਾਬੀ ਸ੍ਰੀ ਗੁਰੂ ਖ਼ਬਰ",
    "Gujarati": "ગુજરાતી ક્ષમા જ્ઞાન",
    "Oriya": "ଓଡ଼ିଆ ଭାଷା କ୍ଷ",
    "Tamil": "தமிழ் ஶ்ரீ க்ஷ மொழி நன்றி",
    "Telugu": "తెలుగు క్షమించండి శ్రీ నమస్\u200cకారం",
    "Kannada": "ಕನ್ನಡ ಕ್ಷ ಶ್ರೀ ರ\u200d್ಯ",
    "Malayalam": "മലയാളം ന്\u200d ക്ഷ ൻ ർ അവന്\u200d",
    "Sinhala": "සිංහල ශ්\u200dරී ලංකා ක්\u200dෂ",
    "Thai": "ที่นี่ ผู้ใหญ่ น้ำ ทั้งหมด ก็ เปิ่น ป้ำๆ เป๋อๆ ใช้",
    "Lao": "ສະບາຍດີ ຂອບໃຈ ທີ່ນີ້ ເຊົ້າ",
    "Khmer": "ភាសាខ្មែរ ស្រុក ក្ស្រ ព្រះ\u200bរាជា ឲ្យ",
    "Burmese": "မြန်မာဘာသာ ကျွန်ုပ် င်္ဂလိပ် ဿ",
    "Tibetan": "བསྒྲུབས་ བོད་ཡིག རྐྱེན་ ཨོཾ་མ་ཎི་པདྨེ་ཧཱུྃ༔ རྡྷྲྱཱུྃ",
    "Dzongkha": "རྫོང་ཁ་ ཧྲྀཿ",
    "Mongolian": "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ ᠭ\u180bᠠ ᠨ\u180cᠢ ᠤᠯᠤᠰ\u202fᠤᠨ ᠬᠡᠯᠡ\u180eᠡ ᠰ\u180d",
    "Ethiopic": "አማርኛ ሰላም ግዕዝ ፊደል፟",
    "Georgian": "ქართული ენა",
    "Armenian": "Հայերեն լեզու՞",
    "Vietnamese NFC": "Việt ổn, đường phố, những người ấy, Nguyễn Thị Ẩm",
    "Vietnamese NFD": "Vie\u0323\u0302t o\u0302\u0309n, "
    "\u0111u\u031bo\u031b\u0300ng, Nguye\u0302\u0303n A\u0302\u0309m",
    "Yoruba": "Ẹ káàbọ̀ o\u0323\u0301 ẹ\u0300 ọmọdé s\u0323",
    "Lithuanian": "i\u0307\u0301 j\u0307\u0303 ė\u0304",
    "Pinyin": "nǐ hǎo lǜ u\u0308\u030c Zhōngguó",
    "Transliteration": "r\u0325\u0304 s\u0323 \u1e5d h\u0331 ʿAlī ś\u0300",
    "IPA": "/ˌɪntəˈnæʃənəl/ [ˈt͡ʃʰaɪ̯n̩ə] ɔ̃ː ə̥ t̪ n̩̍ k͡p˥˩ ɚ̹̽",
    "Greek": "ἄνθρωπος ᾧ Ἀθῆναι ά\u0323 τὸν ᾆ\u0345",
    "Church Slavonic": "гдⷭ҇ь бг҃ъ і҆и҃съ хрⷭ҇то́съ ѻ҆́ нб҃о а҃҂в",
    "Glagolitic": "ⰃⰎⰀⰃⰑⰎⰉⰜⰀ 𞀃𞀞",
    "Coptic": "Ϯⲙⲉⲧⲣⲉⲙⲛ̀ⲭⲏⲙⲓ ⲡ̀ⲛⲟⲩϯ ⲓ̅ⲏ̅ⲥ̅",
    "Hangul": "한국어 글자, 모든 인간은 자유롭다",
    "Hangul Jamo": "\u1112\u1161\u11ab\u1100\u116e\u11a8 \u1100\u119e\u11b7 \ua960\u1161\ud7cb ㅋㅋㅋ ㄱ",
    "Japanese": "がぎぐげご か\u3099き\u3099 は\u309a ｶﾞｷﾞ ﾊﾟ 漢字かな交じり文。「」々〆ヶ 〱",
    "Chinese": "，。《》「」……——×÷→■①②③㎡ 𠮷野家 㗎 ㊙︎ 〇 ⺮ ⿰氵每 ㄅㄆㄇ",
    "Yi": "ꆈꌠꁱꂷ",
    "Cherokee": "ᏣᎳᎩ ꭰꭱ",
    "Canadian": "ᐃᓄᒃᑎᑐᑦ ᓀᐦᐃᔭᐍᐏᐣ",
    "Braille": "⠓⠑⠇⠇⠕",
    "Mathematics": "∀x∈ℝ ∃ȳ: x̂ ≠ 0̸ ∴ ∑ᵢ₌₁ⁿ x̄ᵢ² ≈ √2̅ 𝐟(𝑥)=𝔸⃗ ≨\ufe00 ∩\ufe00 x⃗̇ a̲ f\u2061(x) a\u2062b \u2063",
    "Music": "𝅘𝅥𝅮 𝅘\U0001d165\U0001d16e 𝄞 ♭♮♯ \U0001d15f 𝅗\U0001d165\U0001d17b",
    "Chess and cards": "♔\ufe0e♟\ufe0e 🂡 ♠\ufe0e ☯\ufe0f",
    "Keycaps": "0\ufe0f\u20e3 1\ufe0f\u20e3 #\ufe0f\u20e3 *\ufe0f\u20e3 9\u20e3",
    "Flags": "🇨🇳 🇺🇸 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 🏴\u200d☠\ufe0f "
    "🏳\ufe0f\u200d⚧\ufe0f "
    "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f "
    "🏴\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f "
    "🏴\U000e0075\U000e0073\U000e0074\U000e0078\U000e007f",
    "Families": "👨\u200d👩\u200d👧 🧑\u200d🚀 👩🏽\u200d❤\ufe0f\u200d💋\u200d👨🏿 🐻\u200d❄\ufe0f "
    "🧑🏻\u200d🤝\u200d🧑🏿 ⛹🏽\u200d♀\ufe0f ℹ\ufe0f ©\ufe0f",
    "Typography": "co\u00adop\u00aderate 10\u00a0km 5\u202f000 a\u2009b “x” ‘y’ «z» – "
    "— … ﬁ ﬀ ½ № ™ word\u2060word \u2011",
    "Byte order mark": "\ufeffThis file began with one",
    "HTML": "a[0] < b[1], <html> <s>x</s> x<|y 3<5 [x](y) <<EOF <a href='x'>[1]</a> <!-- [ok] --> [[link]] a |> b <| c",
    "Code": 'if (a<b && c>d) { x[i] = "\\x1b[0m"; } // <T> [[nodiscard]] #[derive(Debug)] $[1] <|> `<tag|attr>`',
    "Cuneiform": "𒀭𒂗𒆤",
    "Egyptian": "𓂋𓏤𓈖 𓇋\U00013430𓏏",
    "Emoticons": "¯\\_(ツ)_/¯ ( ͡° ͜ʖ ͡°) ಠ_ಠ (╯°□°)╯︵ ┻━┻ ʕ•ᴥ•ʔ",
    "Adlam": "𞤀𞤣𞤤𞤢𞤥 𞤆𞤵𞤤𞤢𞤪\U0001e944",
    "Balinese": "ᬩᬲᬩᬮᬶ ᬓ᭄ᬱ",
    "Javanese": "ꦧꦱꦗꦮ ꦏ꧀ꦰ",
    "Tai Tham": "ᨣᩤᩴᨾᩮᩬᩥᨦ ᩉᩖ᩠ᩅᨦ",
    "Meetei": "ꯃꯩꯇꯩꯂꯣꯟ",
    "Chakma": "𑄌𑄋𑄴𑄟𑄳𑄦",
    "SignWriting": "𝠀𝨁𝪜𝪡",
}
